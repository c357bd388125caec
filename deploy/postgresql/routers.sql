-- The registry that routers share is in a database of its own, beside the ledger's. Run once, when the server's volume is new.
CREATE DATABASE speedinfer_routers ENCODING 'UTF8' TEMPLATE template0;

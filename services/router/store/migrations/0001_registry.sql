-- The routers' shared registry. See docs/decisions/0016.

-- One row. Whoever changes a worker raises it in the same statement, so that versions are committed in their order.
CREATE TABLE registry_state (
    one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
    version BIGINT NOT NULL
);
INSERT INTO registry_state (version) VALUES (0);

-- Registrations. `document` is the JSON text as it was registered, and holds secrets.
CREATE TABLE registry_worker (
    worker_id TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    document TEXT NOT NULL,
    registered_at_ms BIGINT NOT NULL,
    draining BOOLEAN NOT NULL
);

-- Routers that are there: those whose lease has not ended. What the columns mean says services/router/share.py.
CREATE TABLE registry_router (
    router_id TEXT PRIMARY KEY,
    lease_until TIMESTAMPTZ NOT NULL,
    version BIGINT NOT NULL,
    agreed TEXT NOT NULL,
    leaving BOOLEAN NOT NULL,
    excess TEXT NOT NULL,
    draining TEXT NOT NULL
);

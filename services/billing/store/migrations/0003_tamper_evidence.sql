-- Hash chains over customers' entries, and signed seals over the chains' heads; see services/billing/chain.py and seal.py.

-- The chain after the entry: NULL for the house's legs, and for entries up to `chain_start`.
ALTER TABLE entry ADD COLUMN chain BLOB CHECK (chain IS NULL OR length(chain) = 32);
-- That of the account's last entry; NULL where no entry of its is chained.
ALTER TABLE account ADD COLUMN chain_head BLOB CHECK (chain_head IS NULL OR length(chain_head) = 32);

-- One row: entries with greater numbers are chained.
CREATE TABLE chain_start (entry_number INTEGER NOT NULL) STRICT;
INSERT INTO chain_start SELECT coalesce(max(number), 0) FROM entry;

CREATE TABLE seal (
    number INTEGER PRIMARY KEY,
    sealed_at_ms INTEGER NOT NULL,
    -- It covers entries up to this number.
    last_entry INTEGER NOT NULL,
    -- How many price versions it covers.
    prices INTEGER NOT NULL,
    -- What was signed, in full; and by which key. The three figures above are copies of what it says.
    statement BLOB NOT NULL,
    signature BLOB NOT NULL,
    key_id TEXT NOT NULL
) STRICT;

CREATE TRIGGER chain_start_stays BEFORE UPDATE ON chain_start BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER chain_start_kept BEFORE DELETE ON chain_start BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER seal_stays BEFORE UPDATE ON seal BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER seal_kept BEFORE DELETE ON seal BEGIN SELECT RAISE(ABORT, 'append only'); END;

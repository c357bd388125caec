-- The ledger. Amounts are nano-USD, moments milliseconds since the epoch (UTC).
-- Numbers in `kind`, `state`, `operation` and `ending` are those of the protos' enums.

CREATE TABLE account (
    account_id TEXT PRIMARY KEY,
    -- 'customer', or 'house': the two own accounts, whose balances are kept nowhere but in their entries.
    kind TEXT NOT NULL CHECK (kind IN ('customer', 'house')),
    name TEXT NOT NULL,
    -- Projections, rebuilt and compared by the audit: of entries, and of reservations in state 1.
    balance_nanos INTEGER NOT NULL DEFAULT 0,
    held_nanos INTEGER NOT NULL DEFAULT 0 CHECK (held_nanos >= 0),
    open_holds INTEGER NOT NULL DEFAULT 0 CHECK (open_holds >= 0),
    entries INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL,
    closed_at_ms INTEGER
) STRICT, WITHOUT ROWID;

INSERT INTO account (account_id, kind, name, created_at_ms) VALUES
    ('house_outside', 'house', 'where money comes from', 0),
    ('house_revenue', 'house', 'where charges go', 0);

CREATE TABLE api_key (
    number INTEGER PRIMARY KEY,
    key_id TEXT NOT NULL UNIQUE,
    account_id TEXT NOT NULL REFERENCES account (account_id),
    name TEXT NOT NULL,
    -- SHA-256 of the key's text; the key itself is nowhere.
    sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
    requests_per_minute INTEGER,
    tokens_per_minute INTEGER,
    concurrency INTEGER,
    -- JSON list of names; empty means all.
    models TEXT NOT NULL,
    expires_at_ms INTEGER,
    daily_spend_nanos INTEGER,
    monthly_spend_nanos INTEGER,
    created_at_ms INTEGER NOT NULL,
    revoked_at_ms INTEGER,
    replaces_key_id TEXT NOT NULL
) STRICT;
CREATE INDEX api_key_account ON api_key (account_id, number);

-- One row a key and period ('minute', 'day', 'month'): the current window only.
CREATE TABLE key_counter (
    key_id TEXT NOT NULL,
    period TEXT NOT NULL,
    start_ms INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    spend_nanos INTEGER NOT NULL,
    PRIMARY KEY (key_id, period)
) STRICT, WITHOUT ROWID;

CREATE TABLE price_version (
    number INTEGER PRIMARY KEY,
    version TEXT NOT NULL UNIQUE,
    model TEXT NOT NULL,
    -- Empty: for all accounts.
    account_id TEXT NOT NULL,
    effective_from_ms INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    -- JSON, with nothing left to defaults.
    tiers TEXT NOT NULL,
    bounds TEXT NOT NULL
) STRICT;
CREATE INDEX price_version_scope ON price_version (model, account_id, effective_from_ms, number);

CREATE TABLE reservation (
    reservation_id TEXT PRIMARY KEY,
    -- NULL: the id was released before it was ever reserved; only the state counts.
    account_id TEXT REFERENCES account (account_id),
    key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    operation INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
    hold_nanos INTEGER NOT NULL CHECK (hold_nanos >= 0),
    output_limit INTEGER,
    price_version TEXT NOT NULL,
    limit_tokens INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL,
    -- The request's content, to compare a repeated one with.
    asked BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    hard_end_ms INTEGER NOT NULL,
    closed_at_ms INTEGER,
    charge_nanos INTEGER,
    prompt_tokens INTEGER,
    cached_prompt_tokens INTEGER,
    completion_tokens INTEGER,
    worker_id TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    ending INTEGER NOT NULL,
    overrun INTEGER NOT NULL,
    balance_after_nanos INTEGER,
    cause TEXT NOT NULL,
    CHECK (account_id IS NOT NULL OR state = 3),
    CHECK ((state IN (2, 5)) = (charge_nanos IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX reservation_account ON reservation (account_id, reservation_id);
CREATE INDEX reservation_open ON reservation (key_id) WHERE state = 1;
-- An idempotency key is free again after release and expiry. A late charge (state 5) may find it taken by then, and must
-- stand all the same: it is in the second index, which is not unique.
CREATE UNIQUE INDEX reservation_bearer ON reservation (account_id, idempotency_key)
    WHERE idempotency_key <> '' AND state IN (1, 2);
CREATE INDEX reservation_late_bearer ON reservation (account_id, idempotency_key)
    WHERE idempotency_key <> '' AND state = 5;

-- Operators' mutations that were done, by the id that their caller made.
CREATE TABLE operation (
    operation_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    content BLOB NOT NULL,
    answer BLOB NOT NULL,
    done_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_transaction (
    number INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 6),
    booked_at_ms INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    operation_id TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT;

CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    transaction_number INTEGER NOT NULL REFERENCES ledger_transaction (number),
    account_id TEXT NOT NULL REFERENCES account (account_id),
    amount_nanos INTEGER NOT NULL,
    -- Counted from 1 within a customer's account; NULL for the house's legs, as is the balance.
    account_seq INTEGER,
    balance_after_nanos INTEGER,
    CHECK ((account_seq IS NULL) = (balance_after_nanos IS NULL))
) STRICT;
CREATE UNIQUE INDEX entry_account ON entry (account_id, account_seq) WHERE account_seq IS NOT NULL;

-- What a charge was made of. At most one a reservation, whatever the code above does.
CREATE TABLE charge (
    transaction_number INTEGER PRIMARY KEY REFERENCES ledger_transaction (number),
    reservation_id TEXT NOT NULL UNIQUE,
    account_id TEXT NOT NULL REFERENCES account (account_id),
    booked_at_ms INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    operation INTEGER NOT NULL,
    price_version TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_prompt_tokens INTEGER,
    completion_tokens INTEGER,
    worker_id TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    ending INTEGER NOT NULL,
    hold_nanos INTEGER NOT NULL,
    amount_nanos INTEGER NOT NULL CHECK (amount_nanos >= 0)
) STRICT;
CREATE INDEX charge_account ON charge (account_id, booked_at_ms);

CREATE TRIGGER ledger_transaction_stays BEFORE UPDATE ON ledger_transaction BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER ledger_transaction_kept BEFORE DELETE ON ledger_transaction BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER entry_stays BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER entry_kept BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER charge_stays BEFORE UPDATE ON charge BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER charge_kept BEFORE DELETE ON charge BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER price_version_stays BEFORE UPDATE ON price_version BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER price_version_kept BEFORE DELETE ON price_version BEGIN SELECT RAISE(ABORT, 'append only'); END;

-- Limits of accounts, and what a rotated key shares with the key that it replaces.

-- What all keys of an account may do together; NULL means without limit.
ALTER TABLE account ADD COLUMN requests_per_minute INTEGER;
ALTER TABLE account ADD COLUMN tokens_per_minute INTEGER;
ALTER TABLE account ADD COLUMN concurrency INTEGER;
-- JSON list of names; empty means all.
ALTER TABLE account ADD COLUMN models TEXT NOT NULL DEFAULT '[]';
ALTER TABLE account ADD COLUMN expires_at_ms INTEGER;
ALTER TABLE account ADD COLUMN daily_spend_nanos INTEGER;
ALTER TABLE account ADD COLUMN monthly_spend_nanos INTEGER;
-- How far below zero holds may take the balance; 0: prepaid.
ALTER TABLE account ADD COLUMN credit_limit_nanos INTEGER NOT NULL DEFAULT 0 CHECK (credit_limit_nanos >= 0);
-- The current windows. They stand in the row that every hold and charge writes anyway, and are counted without a limit too,
-- so that a limit that is set later knows what was used before.
ALTER TABLE account ADD COLUMN minute_start_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account ADD COLUMN minute_requests INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account ADD COLUMN minute_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account ADD COLUMN day_start_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account ADD COLUMN day_spend_nanos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account ADD COLUMN month_start_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account ADD COLUMN month_spend_nanos INTEGER NOT NULL DEFAULT 0;

-- The first key of a line of rotations, whose counters and places all of the line share, and the next of the line.
ALTER TABLE api_key ADD COLUMN first_key_id TEXT NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN replaced_by_key_id TEXT NOT NULL DEFAULT '';
-- Keys of before have counted apart until now, and go on so.
UPDATE api_key SET first_key_id = key_id;
UPDATE api_key SET replaced_by_key_id = coalesce(
    (SELECT later.key_id FROM api_key AS later WHERE later.replaces_key_id = api_key.key_id ORDER BY later.number LIMIT 1), '');
CREATE INDEX api_key_line ON api_key (first_key_id);

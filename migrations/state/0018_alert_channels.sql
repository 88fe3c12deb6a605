-- Where alerts are sent to, beside the dashboard and the log.
CREATE TABLE alert_channels (
	channel_id TEXT NOT NULL PRIMARY KEY,
	kind TEXT NOT NULL CHECK (kind IN ('webhook', 'ntfy')),
	url TEXT NOT NULL,          -- whoever knows it may often send there: never shown or logged in full
	secret TEXT NOT NULL,       -- what signs a webhook, or ntfy's access token; '': none
	severities INTEGER NOT NULL, -- bits: 1 info, 2 warning, 4 critical
	quiet_from INTEGER NOT NULL, -- minutes of the day, local time; -1: no quiet hours
	quiet_to INTEGER NOT NULL,
	added_ms INTEGER NOT NULL,
	added_by TEXT NOT NULL,
	last_ms INTEGER NOT NULL,   -- the last delivery that is over; 0: there was none
	last_result TEXT NOT NULL   -- JSON: what became of it
) STRICT;
-- The outbox: what is to be delivered, in this order. A row is put in the transaction of its alert.
CREATE TABLE alert_deliveries (
	delivery_id TEXT NOT NULL PRIMARY KEY,
	channel_id TEXT NOT NULL,
	alert_id TEXT NOT NULL,
	severity TEXT NOT NULL,
	body TEXT NOT NULL,
	created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX alert_deliveries_of_channel ON alert_deliveries (channel_id);

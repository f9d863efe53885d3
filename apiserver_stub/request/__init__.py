"""A request as the server sees it: request info, the records that handlers pass along, audit, telemetry and traces."""

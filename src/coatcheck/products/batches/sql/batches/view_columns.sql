-- The columns of a batch `b`, in the order of BatchView. get.sql and list.sql include them.
b.org_id, b.id, b.owner, b.service, b.service_endpoint, b.endpoint, b.lane::text AS lane,
       b.is_open,
       b.concurrency, b.rate_per_second, b.rate_key, b.rate_key_per_second, b.webhook_events,
       b.metadata, b.payload_prefix, b.payload_suffix, b.created_at, b.completed_at, b.expires_at

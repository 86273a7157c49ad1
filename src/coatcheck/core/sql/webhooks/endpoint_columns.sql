-- What a reader sees of an endpoint, in the order of EndpointView.
t.org_id, t.id, t.url, t.events, t.description, t.pulled, t.generation, t.failures, t.created_at,
       t.rotated_at, t.paused_at, t.disabled_at, t.pulled_at

-- End the registrations of workers that publish endpoints which are to be deleted, and that have been
-- silent for the longest of their lease times: the rescuer may take everything that they hold. One that
-- comes back finds no registration, registers anew, and publishes its endpoints again.
--
-- $1 service   $2 version, or NULL for all   $3 key of an endpoint, or NULL for all
DELETE FROM workers AS w
WHERE w.died_at IS NULL
  AND w.last_seen_at <= now() - interval '1 second'
      * greatest(w.urgent_seconds, w.standard_seconds, w.bulk_seconds)
  AND w.publishes && ARRAY(
      SELECT p.digest::text
      FROM published_endpoints AS p
      WHERE p.org_id = '' AND p.service_id = $1::text
        AND ($2::integer IS NULL OR p.version = $2) AND ($3::text IS NULL OR p.key = $3)
  )

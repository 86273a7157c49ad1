-- Whether an ended job `j` is of the organisation $1 and of the service of `wanted`: included by the
-- statements that walk jobs_ended. IS TRUE keeps the planner from the primary key, by which it would
-- read the organisation's history.
hashtextextended(job_service(j.endpoint, j.flow) || j.org_id, 0) = wanted.service_hash
          AND j.state IN ('completed', 'failed', 'cancelled') AND j.run_id IS NULL
          AND (j.org_id = $1) IS TRUE
          AND job_service(j.endpoint, j.flow) = wanted.service

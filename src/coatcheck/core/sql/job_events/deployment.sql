-- Which database this is.
SELECT id FROM deployment

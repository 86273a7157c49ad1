"""The only package that speaks SQL. One file under ``sql/`` per verb, one thin method per file."""

"""PostgreSQL: connections, batching, notifications, elections, migrations and SQL files."""

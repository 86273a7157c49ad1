"""What is true of a job, whatever stores or runs it. Pure: no I/O, no clock reads."""

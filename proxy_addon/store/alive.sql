SELECT count(*) FROM process

-- Both ways: after the machine's clock was set back, the beat of a process that died lies ahead.
SELECT count(*) FROM process WHERE beat_at BETWEEN :now - :alive_s AND :now + :alive_s

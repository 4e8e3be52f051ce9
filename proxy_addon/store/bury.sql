-- Both ways: after the machine's clock was set back, the beat of a process that died lies ahead.
DELETE FROM process WHERE beat_at NOT BETWEEN :now - :alive_s AND :now + :alive_s

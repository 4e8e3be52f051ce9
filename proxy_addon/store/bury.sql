DELETE FROM process WHERE beat_at NOT BETWEEN :now - :alive_s AND :now + :alive_s

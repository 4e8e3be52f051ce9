DELETE FROM host WHERE forget_at <= :now

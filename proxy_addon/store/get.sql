SELECT
    rung, next_slot_at, blocked_until, stalled_at, counted_at, stalls_in_a_row, paused_until, pauses, floor_s,
    in_flight_limit, limited_at, operator_floor_s, operator_paused_until, operated_at, resumed_at, version
FROM host
WHERE name = :host AND forget_at IS NULL

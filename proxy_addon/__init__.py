"""Paceproxy: a forward HTTP proxy that paces outbound crawl traffic.

Public are the command `paceproxy`, the addon in `addon.py`, the settings and the metrics; the modules here are
internal and may change in any release. One direction: layer → pacing → engine → store. Where to look for what:

    ladder, rung, pace, slot, pause            ladder.py (the arithmetic of a host's row), changes.py; reading.py (what
                                               time makes of a row)
    resume, floor, an operator's pause         operating.py (what may be done), operated.py (the arithmetic)
    a host as people see it                    views.py
    stall, retry                               retry.py (what a reply means)
    Retry-After, rate limits, quota            rate_limits.py; page_rate.py (the pace that a quota bears)
    window                                     window.py (what a request asks for)
    numbers, dates, structured fields          field_values.py
    line, waiter                               line.py
    limit of attempts in flight, room          in_flight_limit.py (what it is asked), in_flight.py (fixed, or learned)
    learned limit: trial, ease, watch          learned_limit.py, limit_experiments.py (what follows from a finding),
                                               limit_phases.py (what is found out), limit_attempts.py (those out)
    slowdown, page times compared              slowdown.py
    what a row says of the limit               kept_limits.py
    claim, late attempt, batches               dispatch.py (a host's task), late.py, rows.py (the race), store/ (the
                                               contract); sweeping.py (rows that nobody asks about)
    what an outcome sets off                   outcomes.py
    what the log says of a host                host_log.py
    a request's life                           engine.py, seen from HTTP: pacing.py
    attempt, hold, time-out                    stream.py (its parts: cutting_off, awaiting, uploading, holding, flowing,
                                               draining, answering, border)
    connection                                 layer.py (installing), connections.py (origins), flow_control.py;
                                               handler.py (dial, names, reach, race)
    what is read and written                   http1, http1_server, http2, http2_server, forwarding, responses
    tunnels of raw bytes                       tunnels.py, tunnel_end.py
    responses of ours, Proxy-Status            answers.py, refusals.py
    which host a request counts for            hosts.py, targets.py
    which addresses may be dialled             egress.py, loops.py
    settings, flags                            settings.py, setting_*.py, cli.py
    commands beside serving                    commands/ (what one is)
    a command with a proxy of its own          commands/run.py, child.py (signals), bottom_line.py (progress),
                                               crawl_summary.py (its words)
    variables and certificates for clients     client_environment.py, ca_bundle.py, shell_syntax.py
    how many files may be open                 open_files.py
    start, signals, draining                   runner.py, signals.py, embedded.py (mitmproxy_options.py, authority.py),
                                               announcement.py, addon.py
    metrics, probes                            metrics.py, gauges.py, loop_lag.py, admin/probes.py
    admin address, JSON API, events            admin/ (server, accepting; api, guard, documents, history, events,
                                               status_page)
    which variable which client reads          client_variables.py; what follows: diagnosis.py, proxy_probe.py
    status and host commands                   commands/status.py, commands/host.py, admin_client.py, status_text.py
    who is asked is not trusted                terminal_text.py (what it says), bounded_call.py (how long it takes)
    durations, counts, times in words          in_words.py
    where this machine reaches a listener      local_address.py
    a crawl to see it at work                  demo.py
    access log                                 access_log.py; access_line.py (what it says), log_writer.py (its thread),
                                               log_file.py
    impatient clients                          advice.py
"""

__version__ = "0.1.0"

"""When an engine has outlived its use."""

from __future__ import annotations

from kernelserve.engine.lifetime_policy import LifetimePolicy


def make_policy(lifetime, *, linger_s=10.0, idle_unload_s=None) -> LifetimePolicy:
    return LifetimePolicy(lifetime, linger_s=linger_s, idle_unload_s=idle_unload_s, now=0.0)


def test_linger_counts_from_the_last_client():
    policy = make_policy("linger")
    assert policy.reason_to_end(5, num_clients=1, idle_since=0) is None
    assert policy.reason_to_end(14, num_clients=0, idle_since=0) is None
    end = policy.reason_to_end(15, num_clients=0, idle_since=0)
    assert end is not None
    assert end[0] == "linger"


def test_linger_waits_while_the_engine_loads_or_works():
    policy = make_policy("linger")
    assert policy.reason_to_end(50, num_clients=0, idle_since=None) is None
    assert policy.reason_to_end(59, num_clients=0, idle_since=50) is None


def test_kernel_and_detached_engines_do_not_linger():
    for lifetime in ("kernel", "detached"):
        assert make_policy(lifetime).reason_to_end(1e6, num_clients=0, idle_since=0) is None


def test_a20_idle_unload_counts_from_the_last_request_whoever_is_connected():
    for lifetime in ("kernel", "linger", "detached"):
        policy = make_policy(lifetime, idle_unload_s=30)
        assert policy.reason_to_end(29, num_clients=1, idle_since=0) is None
        assert policy.reason_to_end(500, num_clients=1, idle_since=None) is None
        end = policy.reason_to_end(530, num_clients=1, idle_since=500)
        assert end is not None
        assert end[0] == "unloaded"

"""The sparse graph of secure aggregation: how many neighbours are enough, and a round over files in which few mask."""

import math

import numpy as np
import pytest
from scipy.stats import hypergeom

import stages.secagg.graph as graph
from artifacts.errors import FedsynthError, InputError, UsageError
from artifacts.formats import tensors_file
from stages.secagg.collect import collect, for_reader
from stages.secagg.mask import mask
from stages.secagg.roster import read_roster
from stages.secagg.session import read_session
from stages.secagg.terms import SecaggTerms
from stages.secagg.unmask import confirm


def split(n, gone, k, rng):
    """Whether those who are left, each having drawn k of all, are in more than one part."""
    left = range(n - gone)
    parent = list(range(n - gone))

    def root(u):
        while parent[u] != u:
            u = parent[u]
        return u

    for u in left:
        others = rng.choice(n - 1, k, replace=False)
        for v in others + (others >= u):
            if v < n - gone:
                parent[root(u)] = root(int(v))
    return len({root(u) for u in left}) > 1


def test_the_tails_are_those_of_another_library():
    for n, marked, k, t in ((50, 5, 19, 14), (1000, 100, 54, 36), (300, 90, 40, 25)):
        colluding = math.log2(n) + hypergeom(n - 1, marked, k).logsf(t - graph.LEAST_GROUP + 1) / math.log(2)
        assert graph.too_many_colluders(n, marked, k, t) == pytest.approx(colluding, abs=1e-6)
        leaving = math.log2(n) + hypergeom(n - 1, marked, k).logsf(k - t) / math.log(2)
        assert graph.too_few_left(n, marked, k, t) == pytest.approx(leaving, abs=1e-6)


@pytest.mark.parametrize(("n", "gone", "k"), [(12, 4, 2), (20, 8, 2), (16, 3, 1)])
def test_the_bound_on_parts_holds_and_is_near(n, gone, k):
    """By simulation: never below what is found (up to 5 standard deviations), and within a factor of three."""
    rng, trials = np.random.default_rng(0), 4000
    found = sum(split(n, gone, k, rng) for _ in range(trials)) / trials
    bound = 2.0 ** graph.in_parts(n, gone, k)
    assert found <= bound + 5 * math.sqrt(found * (1 - found) / trials)
    assert found >= min(1.0, bound) / 3


@pytest.mark.parametrize(("n", "c", "d"), [(50, 5, 5), (100, 10, 33), (1000, 100, 50), (1000, 100, 333)])
def test_the_neighbourhood_is_the_smallest_that_is_sound(n, c, d):
    found = graph.neighbourhood(n, c, d)

    def sound(k, t):
        return (
            graph.too_many_colluders(n, c, k, t) <= -40
            and graph.too_few_left(n, d, k, t) <= -30
            and graph.in_parts(n, c + d, k) <= -40
        )

    assert sound(found.neighbours, found.threshold)
    assert not any(sound(found.neighbours, t) for t in range(found.threshold + 1, found.neighbours + 1))
    assert not any(sound(found.neighbours - 1, t) for t in range(1, found.neighbours))
    # Whoever is left with t of those it drew, however these were chosen, has this many honest ones beside it.
    most = next(x for x in range(n) if hypergeom(n - 1, c, found.neighbours).sf(x) * n <= 2**-40)
    assert found.threshold - min(most, c) + 1 >= graph.LEAST_GROUP


def test_few_clients_are_everybody_and_too_many_colluders_are_refused():
    assert graph.neighbourhood(10, 1, 3) is None
    with pytest.raises(ValueError, match="must be above 60, found 60"):
        graph.neighbourhood(100, 20, 40)


@pytest.fixture(scope="module")
def small():
    """So small that a test can run it: nine clients, four neighbours; the formula is tested above."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stages.secagg.collect.neighbourhood", lambda *_: graph.Neighbourhood(4, 2))
        patched.setattr("stages.secagg.session.neighbourhood", lambda *_: graph.Neighbourhood(4, 2))
        yield


CLIENTS = 9


@pytest.fixture(scope="module")
def sparse(small, round_class, tmp_path_factory):
    """A round up to its shares."""
    from stages.secagg import client_steps

    run = round_class(tmp_path_factory.mktemp("sparse") / "run", CLIENTS)
    run.keys(graph="sparse", colluders=0, threshold=6)
    for name in run.names:
        client_steps.shares(run.down("keys"), run.up(name, "shares"), roster=run.roster)
    return run


def gathered(run, who=None):
    files = [run.up(name, "shares") for name in who or run.names]
    collect(files, run.down("shares"), roster=run.roster, keys=run.down("keys"), each=True, force=True)


def masked(run, name):
    return mask(for_reader(run.down("shares"), name), run.model, run.updates[name], run.up(name, "masked"), force=True)


def test_each_client_draws_its_own_and_each_reader_gets_what_is_for_it(sparse):
    drawn = {name: tensors_file.read(sparse.up(name, "shares")).metadata.params["receivers"] for name in sparse.names}
    assert all(len(others) == 4 and name not in others for name, others in drawn.items())
    assert len(set(map(tuple, drawn.values()))) > 3, "each draws for itself"
    gathered(sparse)
    for reader in sparse.names:
        found = tensors_file.read(for_reader(sparse.down("shares"), reader))
        assert found.metadata.params["senders"] == [name for name in sparse.names if reader in drawn[name]]
        assert found.metadata.params["present"] == list(sparse.names)
        assert found.tensors["ciphertexts"].shape == (len(found.metadata.params["senders"]), 1, 160)
    whole = tensors_file.read(sparse.down("shares"))
    assert whole.tensors["ciphertexts"].size == 0 and whole.tensors["commitments"].shape == (CLIENTS, 32)


def test_one_pass_for_all_readers(sparse, monkeypatch):
    read, count = tensors_file.read, []
    monkeypatch.setattr(
        "stages.secagg.collect.tensors_file.read", lambda path, **kw: count.append(path) or read(path, **kw)
    )
    gathered(sparse)
    assert sorted(path for path in count if "shares" in path.name) == [sparse.up(n, "shares") for n in sparse.names]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_the_sum_is_exact_whoever_drops_and_streams_are_few(small, round_class, tmp_path, gone):
    run = round_class(tmp_path / "run", CLIENTS)
    run.keys(graph="sparse", colluders=0, threshold=6)
    from stages.secagg import client_steps

    for name in run.names:
        client_steps.shares(run.down("keys"), run.up(name, "shares"), roster=run.roster)
    gathered(run)
    there, peers = run.names[gone:], {}
    for name in there:
        masked(run, name)
        peers[name] = tensors_file.read(run.up(name, "masked")).metadata.params["peers"]
    assert min(map(len, peers.values())) < CLIENTS, "not everybody masks with everybody"
    run.collect("masked", there, "survivors")
    run.confirm(there)
    run.unmask(there)
    total = run.sum(there)
    expected, step = run.plain_sum(there)
    for name, numbers in expected.items():
        assert (total.tensors[name] == (numbers.astype(np.float64) * step).astype(np.float32)).all()
    for name in there:
        answer = tensors_file.read(run.up(name, "unmask")).metadata.params
        assert not {*answer["survivors"]} & {*answer["dropped"]} and name not in answer["survivors"]


def test_a_client_whose_neighbours_are_left_out_does_not_mask(sparse):
    """Else the server could take a client's masks away by telling it that nobody is there."""
    name = sparse.names[0]
    drawn = tensors_file.read(sparse.up(name, "shares")).metadata.params["receivers"]
    gathered(sparse, [other for other in sparse.names if other not in drawn[:3]])
    with pytest.raises(InputError, match="of the 4 neighbours that 'a' drew 1 sent shares, 2 are needed"):
        masked(sparse, name)
    gathered(sparse)


def test_a_client_whose_neighbours_are_called_dropped_does_not_sign(sparse):
    gathered(sparse)
    name = sparse.names[0]
    drawn = tensors_file.read(sparse.up(name, "shares")).metadata.params["receivers"]
    there = [other for other in sparse.names if other not in drawn[:3]]
    for other in there:
        masked(sparse, other)
    sparse.collect("masked", there, "survivors", force=True)
    with pytest.raises(InputError, match="of the neighbours that 'a' drew 1 are left, 2 are needed to hide among"):
        confirm(sparse.down("survivors"), sparse.up(name, "survivors"))


def test_a_list_with_fewer_neighbours_than_the_formula_asks_for_is_refused(sparse, monkeypatch):
    monkeypatch.setattr("stages.secagg.session.neighbourhood", lambda *_: graph.Neighbourhood(5, 2))
    with pytest.raises(FedsynthError, match="its neighbours are not those that its clients"):
        read_session(sparse.down("keys"), read_roster(sparse.roster))


def test_one_list_for_all_is_for_a_complete_graph(sparse):
    files = [sparse.up(name, "shares") for name in sparse.names]
    with pytest.raises(UsageError, match="give --each, or --for CLIENT"):
        collect(files, sparse.down("shares"), roster=sparse.roster, keys=sparse.down("keys"), force=True)
    with pytest.raises(ValueError, match="colluders"):
        SecaggTerms(graph="sparse", colluders=-1)

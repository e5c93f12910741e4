"""The size of the network, compared with the paper."""

import pytest

from cometad import Comet
from cometad.network.network import Network


def test_the_parameter_count_on_psm_is_the_documented_one():
    sizes = Comet.paper("PSM").get_params()
    fields = ("patch_sizes", "patch_strides", "dim", "core_dim", "codebook_size")
    network = Network(25, *(sizes[field] for field in fields))
    # The paper states 567 K; see docs/deviations.md.
    assert sum(parameter.numel() for parameter in network.parameters()) == 317_004


@pytest.mark.parametrize(
    ("dataset", "sizes"),
    [("PSM", (128, 256)), ("SWaT", (256, 256)), ("SMAP", (128, 128)), ("MSL", (256, 128)), ("WADI", (32, 64))],
)
def test_the_paper_preset_has_the_sizes_of_its_table(dataset, sizes):
    detector = Comet.paper(dataset)
    assert (detector.codebook_size, detector.dim) == sizes

"""Importing this module loads the libraries and kernels that trials use, so that no trial's seconds include it.

It starts no threads and does not touch a GPU: the process that imports it is going to fork. For the same reason it
trains no network: the first backward pass may start threads.
"""

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from cometad.compute import thread_count_of
from cometad.metrics import evaluate
from cometad_bench.experiments import SIMPLE, Arm
from cometad_bench.trial import at_threshold, untied_vus_pr


def _warm_up() -> None:
    values = np.random.default_rng(0).normal(size=(600, 3))
    labels = np.arange(len(values)) // 20 == 15
    with threadpool_limits(1), thread_count_of(1):
        for name in (*SIMPLE, "comet"):
            scores = Arm(name, name).build("", seed=0, device="cpu").fit(values).decision_function(values)
            figures = evaluate(labels, scores)
            untied_vus_pr(labels, np.round(scores), figures)
            at_threshold(labels, scores, float(np.median(scores)), period=60)
    # What torch imports at its first training step.
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]).zero_grad()


_warm_up()

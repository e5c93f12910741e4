"""How few random splits it takes to isolate a reading."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn import ensemble

from cometad.arrays import Array, Floats, Floats32
from cometad.baselines.baseline import ReadingBaseline
from cometad.saving import Table, arrays, require_state


@dataclass(kw_only=True, eq=False, repr=False)
class IsolationForest(ReadingBaseline):
    """Scikit-learn's isolation forest, stored as arrays so that saving needs no pickle and scores stay the same.

    >>> import numpy as np
    >>> from cometad.baselines.isolation_forest import IsolationForest
    >>> normal = np.random.default_rng(0).normal(size=(500, 2))
    >>> far, near = IsolationForest(trees=20).fit(normal).decision_function(np.array([[9.0, 9.0], [0.0, 0.0]]))
    >>> bool(far > near)
    True
    """

    # One entry per node, with the trees concatenated: the variable and value of the split, the child nodes, and the
    # path length to a leaf.
    saved: ClassVar[Table] = {
        **arrays(variables_=("node",), left_=("node",), right_=("node",), roots_=("tree",), dtype=np.int64),
        **arrays(cuts_=("node",), depths_=("node",), typical_depth_=(1,)),
    }

    trees: int = 100
    sample: int = 256

    def _learn_readings(self, readings: Floats32) -> None:
        size = min(self.sample, len(readings))
        forest = ensemble.IsolationForest(n_estimators=self.trees, max_samples=size, random_state=self.seed).fit(
            readings
        )
        grown = [tree.tree_ for tree in forest.estimators_]
        sizes = [tree.node_count for tree in grown]
        self.roots_ = np.cumsum([0, *sizes[:-1]])
        self.variables_ = np.concatenate([np.maximum(tree.feature, 0) for tree in grown])
        self.cuts_ = np.concatenate([tree.threshold for tree in grown])
        self.left_ = _nodes([tree.children_left for tree in grown], self.roots_)
        self.right_ = _nodes([tree.children_right for tree in grown], self.roots_)
        self.depths_ = np.concatenate([_depths(tree) for tree in grown])
        self.typical_depth_ = average_path(np.array([size]))

    def _check_state(self) -> None:
        nodes = np.arange(len(self.cuts_))
        leaf = (self.left_ == nodes) & (self.right_ == nodes)
        deeper = (self.left_ > nodes) & (self.right_ > nodes)  # a loop would never end
        below = np.maximum(self.left_, self.right_) < len(nodes)
        known = (self.variables_ >= 0) & (self.variables_ < self.n_features_in_)
        rooted = (self.roots_ >= 0) & (self.roots_ < len(nodes))
        require_state(
            bool(((leaf | deeper) & below & known).all() and rooted.all()), "its nodes are not those of trees"
        )
        positive = bool((self.depths_ >= 0).all())
        require_state(positive, "its array 'depths_' is not one of path lengths")

    def _score_readings(self, readings: Floats) -> Floats:
        rows = np.arange(len(readings))
        values = readings.astype(np.float32)  # the precision in which scikit-learn compares
        total = np.zeros(len(readings))
        for root in self.roots_:
            node = np.full(len(readings), root)
            while (self.left_[node] != node).any():
                goes_left = values[rows, self.variables_[node]] <= self.cuts_[node]
                node = np.where(goes_left, self.left_[node], self.right_[node])
            total += self.depths_[node]
        typical = max(float(self.typical_depth_[0]), 1e-12)  # 0 for a single training reading
        return np.asarray(2.0 ** (-total / (len(self.roots_) * typical)))


def average_path(count: Floats) -> Floats:
    """The average length of an unsuccessful search in a binary search tree of `count` readings."""
    count = np.asarray(count, dtype=np.float64)
    clipped = np.maximum(count, 3)
    general = 2 * (np.log(clipped - 1) + np.euler_gamma) - 2 * (clipped - 1) / clipped
    return np.where(count <= 1, 0.0, np.where(count == 2, 1.0, general))


def _nodes(children: list[Array], roots: Array) -> Array:
    """The indices of the children among all nodes; a leaf is its own child."""
    parts = []
    for root, child in zip(roots, children, strict=True):
        own = np.arange(len(child))
        parts.append(root + np.where(child < 0, own, child))
    return np.concatenate(parts)


def _depths(tree: object) -> Floats:
    """The path length to each node, plus the average number of splits still needed to isolate its readings."""
    left, right, counts = tree.children_left, tree.children_right, tree.n_node_samples  # type: ignore[attr-defined]
    steps = np.zeros(len(left))
    for node in range(len(left)):  # children come after their parent
        if left[node] >= 0:
            steps[[left[node], right[node]]] = steps[node] + 1
    return steps + average_path(counts)

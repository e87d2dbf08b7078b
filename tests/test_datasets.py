import numpy as np
import pytest

from vpboost import datasets


@pytest.mark.parametrize(
    ("make", "sizes"), [("task1", (1200, 257, 257)), ("task2", (1600, 343, 343)), ("task3", (4000, 857, 858))]
)
def test_sizes_and_seeds(make, sizes):
    split = getattr(datasets, make)(seed=1)
    assert tuple(len(part) for part in split[::2]) == sizes
    assert tuple(len(part) for part in split[1::2]) == sizes
    np.testing.assert_array_equal(split.x_train, getattr(datasets, make)(seed=1).x_train)
    assert np.any(split.x_train != getattr(datasets, make)(seed=2).x_train)


def test_task_1_is_the_papers_function():
    x = np.array([[0.25, 0.5], [0.5, 0.3]])
    expected = [
        0.25 * 0.75 * np.cos(np.pi) * np.sin(np.pi) ** 2,
        0.25 * np.cos(2 * np.pi) * np.sin(4 * np.pi * 0.09) ** 2,
    ]
    np.testing.assert_allclose(datasets.oscillatory(x), expected, atol=1e-15)


def test_task_2_lies_on_two_spirals():
    split = datasets.task2()
    radius = np.linalg.norm(split.x_train, axis=1) - 0.2 * split.y_train
    angle = np.arctan2(split.x_train[:, 1], split.x_train[:, 0])
    turns = (4 * np.pi * radius - angle) / (2 * np.pi)
    np.testing.assert_allclose(turns, np.round(turns), atol=1e-9)
    np.testing.assert_allclose(split.y_train.mean(), 0.5, atol=0.05)


def test_task_3_has_balanced_classes_of_equal_slices():
    split = datasets.task3()
    labels = np.concatenate([split.y_train, split.y_val, split.y_test])
    np.testing.assert_array_equal(np.bincount(labels), 1143)
    np.testing.assert_array_equal(split.y_train, datasets.peaks_class(split.x_train))
    # the well-known extremes of peaks: about 8.106 and −6.551
    np.testing.assert_allclose(datasets.peaks(np.array([[-0.0093, 1.5814]])), 8.1062, atol=0.35)
    assert datasets.peaks_class(np.array([[0.228, -1.626]]))[0] == 0

"""What the gallery keeps of codes that can be searched by eye."""

import numpy as np
import scipy.sparse

from sparse_embed.experiments.evaluation import gallery


def test_results_codes_and_responses():
    """Rows 2i and 2i + 1 are a pair with all weight on dimension i; distractors have dimension 9,
    and row 19, of the last pair, is mistaken for one of them."""
    rows = np.zeros((24, 10), np.float32)
    rows[np.arange(18), np.arange(18) // 2] = 1
    rows[[18, 19], [8, 9]] = 1
    rows[20:, 9] = [0.9, 0.8, 0.7, 0.6]
    rows[20:, 0] = np.sqrt(1 - rows[20:, 9] ** 2)
    labels = np.append(np.arange(20) // 2, np.full(4, -1))
    images = np.arange(24, dtype=np.uint8)[:, None, None] * np.ones((1, 4, 4), np.uint8)
    vectors = scipy.sparse.csr_array(rows)
    metrics, arrays = gallery.evaluate(vectors, labels, images)

    shown = arrays["images"][:, 0, 0]  # the row of each image
    assert len(set(shown)) == len(shown)
    queries, results = shown[arrays["queries"]], shown[arrays["results"]]
    for query, found, is_right, place in zip(
        queries, results, arrays["is_right"], arrays["results"], strict=True
    ):
        if query < 16:  # row 18 shares dimension 8 with rows 16 and 17
            assert found[0] == query ^ 1
            assert is_right[0]
        if query == 19:
            assert found[0] == 20
        np.testing.assert_array_equal(is_right, (labels[found] == labels[query]) & (place >= 0))
        assert query not in found[place >= 0]
    assert not arrays["is_right"][metrics["random_queries"] :, 0].any()  # those chosen as wrong
    codes = scipy.sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]))
    np.testing.assert_array_equal(codes.toarray(), rows[shown, : codes.shape[1]])
    for dimension, responses, values in zip(
        arrays["dimensions"], arrays["responses"], arrays["activations"], strict=True
    ):
        highest = np.sort(rows[:, dimension])[::-1][:6]
        np.testing.assert_allclose(values, np.where(highest > 0, highest, 0))
        there = responses >= 0
        np.testing.assert_allclose(rows[shown[responses[there]], dimension], values[there])

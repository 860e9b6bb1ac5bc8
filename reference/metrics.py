"""The paper's numbers from an accuracy matrix.

M: a list of T rows; M[i][j] is the accuracy on task j after learning task i, for j <= i, both
0-based here. Entries past the diagonal, if present, are not read. Source: eq. matrix.
"""


def final(M):
    """Mean accuracy over all tasks after the last. Source: eq. metrics."""
    T = len(M)
    total = 0.0
    for j in range(T):
        total += M[T - 1][j]
    return total / T


def diag(M):
    """Mean accuracy on each task right after it was learned. Source: eq. metrics."""
    T = len(M)
    total = 0.0
    for j in range(T):
        total += M[j][j]
    return total / T


def forget(M):
    """Mean drop from best to final accuracy, the last task left out; T > 1. Source: eq. metrics."""
    T = len(M)
    total = 0.0
    for j in range(T - 1):
        best = M[j][j]
        for i in range(j, T):
            best = max(best, M[i][j])
        total += best - M[T - 1][j]
    return total / (T - 1)


def retention(M, age):
    """R(a): the mean of all entries with i - j = a. Source: sec:res-time."""
    T = len(M)
    total = 0.0
    count = 0
    for i in range(T):
        for j in range(i + 1):
            if i - j == age:
                total += M[i][j]
                count += 1
    return total / count


def half_life(M):
    """The first age at which R(a) < R(0) / 2, None if it never falls so far.

    Source: sec:res-time.
    """
    for age in range(len(M)):
        if retention(M, age) < retention(M, 0) / 2:
            return age
    return None

"""IDENTIFY: what data say about numbers, from the Jacobian of the residuals.

    r = W (y(p) - data)              J = dr/dx = U S V^T,  x of size one                                           (1)
    rank                             how many singular values exceed s_max * 1e-7
    V columns beyond the rank        combinations that the data do not see
    s^2 = |r|^2 / (N - rank)         residual variance                                                             (2)
    C = s^2 T' (J^T J)^+ T'^T        covariance of the physical numbers, T' = dp/dx                                (3)
    p_k +- t(N - rank) C_kk^1/2      confidence interval, t: quantile of Student's distribution                    (4)

A number that takes part in a combination that the data do not see gets no interval: there is none (Seber and Wild,
Nonlinear Regression, 1989, ch. 3.3). So does one that a bound holds.
"""

import dataclasses

import numpy as np

_RANK = 1e-7  # of the largest singular value
_PART = 1e-3  # of a combination: less is none


@dataclasses.dataclass(frozen=True)
class Identified:
    """What the data determine.

    - `rank`: of the Jacobian; `condition`: its largest singular value beside the smallest one of that rank.
    - `errors`: standard error of each number, nan where there is none; `covariance`: nan there, too.
    - `combinations`: relative changes of numbers by name that change nothing in the data.
    - `held`: numbers at a bound; `freedom`: N - rank.
    """

    rank: int
    condition: float
    errors: dict[str, float]
    half: dict[str, float]
    covariance: np.ndarray
    combinations: tuple[dict[str, float], ...]
    held: tuple[str, ...]
    freedom: int
    variance: float


def identify(
    names: list[str], p: np.ndarray, slope: np.ndarray, r: np.ndarray, J: np.ndarray, free: np.ndarray, level: float
) -> Identified:
    """(1) to (4); `free`: the numbers x that no bound holds."""
    from scipy.special import stdtrit

    _, s, Vt = np.linalg.svd(J[:, free], full_matrices=True)
    s = np.concatenate([s, np.zeros(len(Vt) - len(s))])
    rank = int((s > _RANK * s.max(initial=0.0)).sum()) if s.max(initial=0.0) > 0 else 0
    freedom = len(r) - rank
    variance = float(r @ r) / freedom if freedom > 0 else np.nan  # (2)
    T = slope[:, free]
    inverse = (Vt[:rank].T / s[:rank] ** 2) @ Vt[:rank]
    C = variance * T @ inverse @ T.T  # (3)
    unseen, size = T @ Vt[rank:].T, np.abs(T).max(1, initial=0.0)
    part = np.abs(unseen).max(1, initial=0.0) / np.where(size > 0, size, 1.0)
    lost = (part > _PART) | (size == 0)
    C[lost, :] = C[:, lost] = np.nan
    errors = np.sqrt(np.diag(C))
    half = float(stdtrit(freedom, 0.5 + level / 2)) * errors if freedom > 0 else np.full(len(p), np.nan)  # (4)
    condition = float(s[0] / s[rank - 1]) if rank else np.inf
    named = lambda values: dict(zip(names, np.asarray(values, float).tolist(), strict=True))
    held = tuple(name for name, width in zip(names, size, strict=True) if width == 0)
    combinations = tuple(_combination(names, p, row) for row in _sparse(unseen.T))
    return Identified(rank, condition, named(errors), named(half), C, combinations, held, freedom, variance)


def _sparse(rows: np.ndarray) -> np.ndarray:
    """Rows of the same space, each with a number that no other has (Gauss and Jordan)."""
    rows = rows.copy()
    for k in range(len(rows)):
        size = np.abs(rows).copy()
        size[:k] = 0.0
        i, column = np.unravel_index(int(size.argmax()), size.shape)
        rows[[k, i]] = rows[[i, k]]
        rows[k] = rows[k] / rows[k, column]
        for other in range(len(rows)):
            if other != k:
                rows[other] = rows[other] - rows[other, column] * rows[k]
    return rows


def _combination(names: list[str], p: np.ndarray, change: np.ndarray) -> dict[str, float]:
    """A direction as relative changes, the largest one."""
    relative = change / np.where(p == 0, 1.0, np.abs(p))
    relative = relative / relative[np.abs(relative).argmax()]
    return {name: float(v) for name, v in zip(names, relative, strict=True) if abs(v) > _PART}

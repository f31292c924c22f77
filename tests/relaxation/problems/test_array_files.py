import io
import zipfile

import numpy as np
import pytest
import scipy.io
from scipy import sparse

import paracosm
from paracosm.errors import InputError
from paracosm.relaxation import problem_from
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.matrix_files import read_matrix, right_hand_side
from paracosm.relaxation.spec import spec_of

A = sparse.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(6, 6))
B = np.arange(6.0)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("compressed", [True, False])
def test_sparse_matrices_of_scipy_are_read_in_every_form(tmp_path, form, compressed):
    sparse.save_npz(tmp_path / "A.npz", A.asformat(form), compressed=compressed)
    assert (read_matrix(tmp_path / "A.npz").toarray() == A.toarray()).all()


def test_dense_matrices_are_read(tmp_path):
    np.save(tmp_path / "A.npy", A.toarray())
    np.savez(tmp_path / "both.npz", A=A.toarray(), inverse=np.eye(6), b=B)
    for name in ("A.npy", "both.npz"):
        assert (read_matrix(tmp_path / name) == A.toarray()).all()


def test_matlab_files_are_read_also_those_of_suitesparse(tmp_path):
    scipy.io.savemat(tmp_path / "plain.mat", {"A": A.tocsc(), "b": B[:, None], "name": "six"})
    problem = {"name": "group/six", "A": A.tocsc(), "b": B[:, None], "kind": "thermal"}
    scipy.io.savemat(tmp_path / "suitesparse.mat", {"Problem": problem}, do_compression=True)
    for name in ("plain.mat", "suitesparse.mat"):
        assert (read_matrix(tmp_path / name).toarray() == A.toarray()).all()
        b, _ = right_hand_side(A.tocsr(), str(tmp_path / name), 0)
        assert (b == B).all()


def test_a_file_that_does_not_say_which_matrix_is_meant_is_refused(tmp_path):
    np.savez(tmp_path / "two.npz", left=np.eye(3), right=np.eye(3))
    np.savez(tmp_path / "none.npz", b=B)
    with pytest.raises(InputError, match=r"square matrix: left \(3x3\), right \(3x3\): call it A"):
        read_matrix(tmp_path / "two.npz")
    with pytest.raises(InputError, match=r"no square matrix in it, but b \(6\)"):
        read_matrix(tmp_path / "none.npz")


def _npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_indices_outside_the_matrix_are_refused_before_compiled_code_follows_them(tmp_path):
    csr = A.tocsr()
    indices = csr.indices.copy()
    indices[3] = 10**6
    parts = {"data": csr.data, "indptr": csr.indptr, "shape": np.array(csr.shape)}
    path = tmp_path / "outside.npz"
    path.write_bytes(_npz(format=np.array("csr"), indices=indices, **parts))
    with pytest.raises(InputError, match="save_npz"):
        read_matrix(path)


def test_damaged_files_are_refused_in_one_line(tmp_path):
    sparse.save_npz(tmp_path / "A.npz", A.tocsr())
    scipy.io.savemat(tmp_path / "A.mat", {"A": A.tocsc()})
    np.save(tmp_path / "A.npy", A.toarray())
    for name in ("A.npz", "A.mat", "A.npy"):
        whole = (tmp_path / name).read_bytes()
        for end in (20, len(whole) // 2, len(whole) - 3):
            (tmp_path / name).write_bytes(whole[:end])
            with pytest.raises(InputError) as caught:
                read_matrix(tmp_path / name)
            assert "\n" not in str(caught.value)


def test_an_archive_that_unpacks_to_more_than_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("A.npy", bytes(1 << 20))
    monkeypatch.setattr("paracosm.relaxation.array_files.MOST_BYTES", 1 << 19)
    with pytest.raises(InputError, match="GiB unpacked"):
        read_matrix(path)


def test_a_table_as_text_is_refused_with_what_would_be_read(tmp_path):
    np.savetxt(tmp_path / "A.csv", A.toarray())
    with pytest.raises(InputError, match=r"scipy.io.mmwrite writes it.*\.npz.*\.npy.*\.mat"):
        read_matrix(tmp_path / "A.csv")


def test_python_takes_matrices_and_vectors_wherever_files_go():
    runs = [
        paracosm.relax(A, B, baseline=False, seed=1),
        paracosm.relax(matrix=A.toarray(), rhs=list(B), baseline=False, seed=1),
        paracosm.relax(problem=problem_from(A.tocsr(), B), baseline=False, seed=1),
    ]
    assert {run.status for run in runs} == {"converged"}
    assert len({run.summary.virtual_time for run in runs}) == 1


def test_a_study_of_a_matrix_from_python_says_that_it_lacks_it(tmp_path):
    first = paracosm.relax(A, B, baseline=False, out=tmp_path / "run")
    other = RelaxConfig(matrix=2 * A, rhs=B).model_dump()["matrix"]
    text = (tmp_path / "run" / "study.yaml").read_text()
    assert "6x6, given in Python (checksum " in text
    assert other not in text  # so that a sweep that goes on tells other matrices apart
    assert first.status == paracosm.open(tmp_path / "run").status
    with pytest.raises(InputError, match="matrix: it was given in Python"):
        paracosm.study(tmp_path / "run" / "study.yaml")


def test_speeds_are_drawn_once_by_the_seed():
    config = RelaxConfig(problem="laplace2d:4", processors=8, speeds="uniform(0.5, 2)")

    def speeds(seed):
        return spec_of(config, seed).config.speeds

    assert speeds(1) == speeds(1) != speeds(2)
    assert all(0.5 < speed < 2 for speed in speeds(1))
    assert config.model_dump()["speeds"] == "uniform(0.5, 2)"

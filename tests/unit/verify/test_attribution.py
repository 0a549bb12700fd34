"""What the built extension's symbols say about it."""

from dice.verify.attribution import controls, library_calls


def _object(tmp_path, *names):
    path = tmp_path / "extension.so"
    path.write_bytes(b"\x7fELF" + b"".join(b"\0" + name.encode() for name in names) + b"\0")
    return path


def test_the_runtimes_controls_are_named_and_launches_are_not(tmp_path):
    path = _object(tmp_path, "simt_set_mode", "dice_cuda_set_skip", "dice_cuda_launch")
    assert controls(path, "slim") == ["dice_cuda_set_skip", "simt_set_mode"]


def test_frames_of_the_interpreter_are_pybind11s_business_only(tmp_path):
    path = _object(tmp_path, "PyFrame_GetBack", "PyLong_FromLong")
    assert controls(path, "slim") == ["PyFrame_GetBack"]
    assert controls(path, "full") == []
    assert controls(path, "stock") == []


def test_operators_and_blas_count_as_library_calls_but_allocations_do_not(tmp_path):
    names = ("_ZN2at4_ops6matmul4callERKNS_6TensorES4_", "cublasSgemm_v2", "cublasCreate_v2")
    path = _object(tmp_path, *names, "_ZN2at4_ops10empty_like4callERKNS_6TensorE")
    assert library_calls(path) == {"at::matmul", "cublasSgemm_v2"}

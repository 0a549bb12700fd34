// Tensors between Python and C++, against torch's real header.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/python_variable.h>

const at::Tensor* simt_tensor_of(PyObject* object);
PyObject* simt_tensor_to_python(const at::Tensor& tensor);
at::Tensor simt_cat(at::TensorList tensors, int64_t dim);

const at::Tensor* simt_tensor_of(PyObject* object) {
  return THPVariable_Check(object) ? &THPVariable_Unpack(object) : nullptr;
}

PyObject* simt_tensor_to_python(const at::Tensor& tensor) { return THPVariable_Wrap(tensor); }

at::Tensor simt_cat(at::TensorList tensors, int64_t dim) { return at::cat(tensors, dim); }

// The only code that knows how torch stores a tensor in a Python object: compiled once against
// torch's own header, so that the slim prelude assumes nothing about it.
#include <torch/csrc/autograd/python_variable.h>

#include "simt/context.h"

const at::Tensor* simt_tensor_of(PyObject* object) {
  if (!THPVariable_Check(object)) {
    return nullptr;
  }
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (tensor.defined() && tensor.has_storage()) {
    const c10::Storage& storage = tensor.storage();
    simt::note_host_memory(storage.data(), storage.nbytes());
  }
  return &tensor;
}

PyObject* simt_tensor_to_python(const at::Tensor& tensor) {
  return THPVariable_Wrap(tensor);
}

at::Tensor simt_cat(at::TensorList tensors, int64_t dim);
at::Tensor simt_cat(at::TensorList tensors, int64_t dim) { return at::cat(tensors, dim); }

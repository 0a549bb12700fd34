// Python bindings by plain CPython calls.
//
// A binding reads its arguments with simt_get<T>(args, count, index, default) and returns
// simt_put(value) or simt_none(), inside simt_guard, which turns C++ exceptions into Python's.
#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <stdexcept>

// Defined in runtime/torch_glue.cpp against torch's real header: no layout is assumed here.
const at::Tensor* simt_tensor_of(PyObject* object);  // null when `object` is no tensor
PyObject* simt_tensor_to_python(const at::Tensor& tensor);

inline PyObject* simt_none() {
  Py_INCREF(Py_None);
  return Py_None;
}

inline void simt_check_n(Py_ssize_t count, int limit, const char* function) {
  if (count > limit) {
    throw std::invalid_argument(std::string(function) + "() takes " + std::to_string(limit) +
                                " arguments, " + std::to_string(count) + " given");
  }
}

[[noreturn]] inline void simt_type_error(const char* wanted, PyObject* got) {
  PyErr_Clear();
  throw std::invalid_argument(std::string("expected ") + wanted + ", got " +
                              Py_TYPE(got)->tp_name);
}

// get: Python to C++; put: C++ to Python.
template <class T>
struct simt_conv;

template <>
struct simt_conv<at::Tensor> {
  static at::Tensor get(PyObject* object) {
    const at::Tensor* tensor = simt_tensor_of(object);
    if (tensor == nullptr) {
      simt_type_error("a Tensor", object);
    }
    return *tensor;
  }
  static PyObject* put(const at::Tensor& tensor) {
    return tensor.defined() ? simt_tensor_to_python(tensor) : simt_none();
  }
};

// Integers accept what has __index__ or is an integral tensor or numpy scalar, never a float.
template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
struct simt_conv<T> {
  static T get(PyObject* object) {
    if (PyFloat_Check(object)) {
      simt_type_error("an int", object);
    }
    PyObject* integer = PyNumber_Index(object);
    if (integer == nullptr) {
      PyErr_Clear();
      integer = PyNumber_Long(object);
    }
    if (integer == nullptr) {
      simt_type_error("an int", object);
    }
    long long value = PyLong_AsLongLong(integer);
    Py_DECREF(integer);
    if (PyErr_Occurred()) {
      simt_type_error("an int of at most 64 bits", object);
    }
    if (static_cast<long long>(static_cast<T>(value)) != value) {
      simt_type_error("a smaller int", object);
    }
    return static_cast<T>(value);
  }
  static PyObject* put(T value) { return PyLong_FromLongLong(value); }
};

template <class T>
  requires(std::is_floating_point_v<T>)
struct simt_conv<T> {
  static T get(PyObject* object) {
    double value = PyFloat_AsDouble(object);
    if (PyErr_Occurred()) {
      simt_type_error("a float", object);
    }
    return static_cast<T>(value);
  }
  static PyObject* put(T value) { return PyFloat_FromDouble(value); }
};

template <>
struct simt_conv<bool> {
  static bool get(PyObject* object) {
    int truth = PyObject_IsTrue(object);
    if (truth < 0) {
      simt_type_error("a bool", object);
    }
    return truth != 0;
  }
  static PyObject* put(bool value) { return PyBool_FromLong(value); }
};

template <>
struct simt_conv<std::string> {
  static std::string get(PyObject* object) {
    const char* text = PyUnicode_AsUTF8(object);
    if (text == nullptr) {
      simt_type_error("a str", object);
    }
    return text;
  }
  static PyObject* put(const std::string& value) {
    return PyUnicode_FromStringAndSize(value.data(), value.size());
  }
};

template <>
struct simt_conv<at::Scalar> {
  static at::Scalar get(PyObject* object) {
    if (PyBool_Check(object)) {
      return at::Scalar(object == Py_True);
    }
    if (PyLong_Check(object)) {
      return at::Scalar(simt_conv<int64_t>::get(object));
    }
    return at::Scalar(simt_conv<double>::get(object));
  }
};

template <class T>
struct simt_conv<std::vector<T>> {
  static std::vector<T> get(PyObject* object) {
    PyObject* sequence = PySequence_Fast(object, "");
    if (sequence == nullptr) {
      simt_type_error("a sequence", object);
    }
    std::vector<T> values;
    try {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); i++) {
        values.push_back(simt_conv<T>::get(PySequence_Fast_GET_ITEM(sequence, i)));
      }
    } catch (...) {
      Py_DECREF(sequence);
      throw;
    }
    Py_DECREF(sequence);
    return values;
  }
  static PyObject* put(const std::vector<T>& values) {
    PyObject* list = PyList_New(values.size());
    for (size_t i = 0; i < values.size(); i++) {
      PyList_SET_ITEM(list, i, simt_conv<T>::put(values[i]));
    }
    return list;
  }
};

// An ArrayRef or a vector view outlives its source only as long as this owner, which is a
// temporary of the call expression.
template <class T>
struct simt_conv<c10::ArrayRef<T>> {
  static std::vector<T> get(PyObject* object) { return simt_conv<std::vector<T>>::get(object); }
};

template <class T>
struct simt_conv<std::optional<T>> {
  static std::optional<T> get(PyObject* object) {
    if (object == Py_None) {
      return std::nullopt;
    }
    return simt_conv<T>::get(object);
  }
  static PyObject* put(const std::optional<T>& value) {
    return value ? simt_conv<T>::put(*value) : simt_none();
  }
};

template <class... T>
struct simt_conv<std::tuple<T...>> {
  static PyObject* put(const std::tuple<T...>& values) {
    PyObject* tuple = PyTuple_New(sizeof...(T));
    Py_ssize_t index = 0;
    auto set = [&](const auto& value) {
      using Value = std::decay_t<decltype(value)>;
      PyTuple_SET_ITEM(tuple, index++, simt_conv<Value>::put(value));
    };
    std::apply([&](const auto&... value) { (set(value), ...); }, values);
    return tuple;
  }
};

template <class A, class B>
struct simt_conv<std::pair<A, B>> {
  static PyObject* put(const std::pair<A, B>& value) {
    return simt_conv<std::tuple<A, B>>::put({value.first, value.second});
  }
};

template <class T, size_t Size>
struct simt_conv<std::array<T, Size>> {
  static std::array<T, Size> get(PyObject* object) {
    std::vector<T> values = simt_conv<std::vector<T>>::get(object);
    if (values.size() != Size) {
      simt_type_error("a sequence of another length", object);
    }
    std::array<T, Size> result;
    std::copy(values.begin(), values.end(), result.begin());
    return result;
  }
  static PyObject* put(const std::array<T, Size>& value) {
    return simt_conv<std::vector<T>>::put({value.begin(), value.end()});
  }
};

// Argument `index`, or make_default() when the call is shorter; nullptr when it has no default.
template <class T, class MakeDefault>
auto simt_get(PyObject* const* args, Py_ssize_t count, int index, MakeDefault make_default) {
  if (index < count && args[index] != nullptr) {
    return simt_conv<T>::get(args[index]);
  }
  if constexpr (std::is_same_v<MakeDefault, std::nullptr_t>) {
    throw std::invalid_argument("argument " + std::to_string(index + 1) + " is missing");
    return simt_conv<T>::get(nullptr);
  } else {
    return decltype(simt_conv<T>::get(nullptr))(make_default());
  }
}

template <class T>
PyObject* simt_put(const T& value) {
  return simt_conv<T>::put(value);
}

inline PyObject* simt_put(const char* value) {
  return PyUnicode_FromString(value);
}

template <class Call>
PyObject* simt_guard(Call call) {
  try {
    return call();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const c10::IndexError& error) {
    PyErr_SetString(PyExc_IndexError, error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what_without_backtrace());
  } catch (const c10::NotImplementedError& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
  return nullptr;
}

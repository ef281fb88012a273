// The Python exceptions of what C++ throws.
#pragma once

#include <Python.h>

#include <cerrno>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

#include "mapping.h"

namespace sparse_embed {

inline PyObject* file_changed_error = nullptr;  // the exception for FileChanged

inline void set_file_changed_error(PyObject* type) {
  Py_INCREF(type);
  file_changed_error = type;
}

// Raises in Python what has just been caught.
inline void raise_python() {
  try {
    throw;
  } catch (const FileChanged& error) {
    if (PyObject* message = PyUnicode_DecodeFSDefault(error.what())) {
      PyErr_SetObject(file_changed_error, message);
      Py_DECREF(message);
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace sparse_embed

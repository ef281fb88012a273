// Keeps a Python object for as long as C++ uses its memory.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

namespace sparse_embed {

// The last copy of the pointer may die on any thread: it takes the interpreter's lock then. Nobody
// who has that lock waits for a thread that holds such a pointer.
inline std::shared_ptr<uint8_t> python_owner(PyObject* object) {
  Py_INCREF(object);
  return std::shared_ptr<uint8_t>(static_cast<uint8_t*>(nullptr), [object](uint8_t*) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(object);
    PyGILState_Release(state);
  });
}

}  // namespace sparse_embed

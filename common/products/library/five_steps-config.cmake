# find_package(five_steps) gives the target five_steps::five_steps: the shared library and its header.
get_filename_component(_five_steps "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET five_steps::five_steps)
  add_library(five_steps::five_steps SHARED IMPORTED)
  set_target_properties(five_steps::five_steps PROPERTIES
    IMPORTED_LOCATION "${_five_steps}/lib/libfive_steps.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_five_steps}/include")
endif()
unset(_five_steps)

# Open MPI and MPICH, each on its own: their headers exclude one another, so what uses MPI is built
# once for each that is found. DPB_MPI_LIBRARIES lists them; targets dpb_mpi_openmpi, dpb_mpi_mpich.

dpb_auto(MPI "Communication through MPI")

# dpb_mpi_find(name text package library): pkg-config knows the folders, mpirun.NAME starts ranks.
function(dpb_mpi_find name text package library)
    pkg_check_modules(DPB_MPI_${name} QUIET ${package})
    find_path(DPB_MPI_${name}_INCLUDE mpi.h HINTS ${DPB_MPI_${name}_INCLUDE_DIRS} NO_DEFAULT_PATH)
    find_library(DPB_MPI_${name}_LIBRARY ${library} HINTS ${DPB_MPI_${name}_LIBRARY_DIRS})
    find_program(DPB_MPI_${name}_RUN mpirun.${name})
    mark_as_advanced(DPB_MPI_${name}_INCLUDE DPB_MPI_${name}_LIBRARY DPB_MPI_${name}_RUN)
    if(NOT DPB_MPI_${name}_INCLUDE OR NOT DPB_MPI_${name}_LIBRARY)
        dpb_feature("${text}" FALSE "not found (lib${name}-dev): no module for it, its tests are not run")
        return()
    endif()
    add_library(dpb_mpi_${name} INTERFACE)
    target_include_directories(dpb_mpi_${name} SYSTEM INTERFACE ${DPB_MPI_${name}_INCLUDE})
    target_link_libraries(dpb_mpi_${name} INTERFACE ${DPB_MPI_${name}_LIBRARY})
    # MPICH's MPI_STATUSES_IGNORE is the address 1, which gcc takes for an array.
    target_compile_options(dpb_mpi_${name} INTERFACE
            $<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-stringop-overflow>)
    set(DPB_MPI_LIBRARIES ${DPB_MPI_LIBRARIES} ${name} PARENT_SCOPE)
    if(DPB_MPI_${name}_RUN)
        dpb_feature("${text}" TRUE "${DPB_MPI_${name}_VERSION}, ${DPB_MPI_${name}_LIBRARY}")
    else()
        dpb_feature("${text}" TRUE
            "${DPB_MPI_${name}_VERSION}; mpirun.${name} is not found: its tests are not run")
    endif()
endfunction()

set(DPB_MPI_LIBRARIES "")
if(DPB_MPI STREQUAL "OFF")
    dpb_feature("MPI" FALSE "DPB_MPI=OFF")
elseif(DPB_SANITIZE)
    dpb_feature("MPI" FALSE "not built with sanitizers: its libraries know nothing of them")
else()
    dpb_mpi_find(openmpi "Open MPI" ompi-c mpi)
    dpb_mpi_find(mpich "MPICH" mpich mpich)
    if(DPB_MPI STREQUAL "ON" AND NOT DPB_MPI_LIBRARIES)
        message(FATAL_ERROR "DPB_MPI=ON, but neither Open MPI (libopenmpi-dev) nor MPICH "
                "(libmpich-dev) is found")
    endif()
endif()

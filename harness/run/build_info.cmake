# Run at every build: writes build_info.h when the commit, or whether the tree is dirty, changed.
execute_process(COMMAND git rev-parse HEAD WORKING_DIRECTORY ${SOURCE_DIR}
        OUTPUT_VARIABLE sha OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
    set(sha "unknown")
    set(dirty 0)
else()
    execute_process(COMMAND git status --porcelain --untracked-files=no
            WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
        set(dirty 1)
    else()
        set(dirty 0)
    endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
"#define DPB_BUILD_VERSION \"${VERSION}\"
#define DPB_BUILD_GIT_SHA \"${sha}\"
#define DPB_BUILD_DIRTY ${dirty}
#define DPB_BUILD_TYPE \"${BUILD_TYPE}\"
#define DPB_BUILD_COMPILER \"${COMPILER}\"
#define DPB_BUILD_FLAGS \"${FLAGS}\"
")

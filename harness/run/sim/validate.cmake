# Predictions of published runs; the tables are a part of the program.
dpb_room(dpb_run_validate
    SOURCES
        validate.c
        validate_fit.c
        validate_match.c
        validate_models.c
        validate_predict.c
        validate_report.c
        validate_rows.c
    DEPENDS dpb_run_sim dpb_results
    PRIVATE m)
set(published ${CMAKE_SOURCE_DIR}/results/published)
dpb_embed(dpb_run_validate validate_scaling_text ${published}/scaling.csv)
dpb_embed(dpb_run_validate validate_models_text ${published}/models.csv)
dpb_embed(dpb_run_validate validate_constants_text ${published}/constants.csv)
foreach(name alexnet inception_v3 vit_b_16)
    dpb_embed(dpb_run_validate validate_layers_${name} ${published}/layers/${name}.csv)
endforeach()

dpb_test(test_validate SOURCES tests/test_validate.c LINK dpb_run_validate m)
dpb_test(test_scenarios SOURCES tests/test_scenarios.c LINK dpb_run_sim m)

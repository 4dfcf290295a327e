#include "dpb_test.h"

#include "dpb_hash.h"

/* The examples of FIPS 180-4, and every length around a block against sha256sum. */
static void test_known_answers(void **state)
{
    static const struct {
        const char *text, *hash;
    } known[] = {
            {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
            {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
            {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
             "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char text[DPB_SHA256_TEXT_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        dpb_sha256_text(known[i].text, strlen(known[i].text), text);
        assert_string_equal(text, known[i].hash);
    }
}

/* One hash over the hashes of 0 to 199 times "a": `for i in range(200)` in Python's hashlib. */
static void test_every_length(void **state)
{
    static char all[200 * 64 + 1], a[200];
    char text[DPB_SHA256_TEXT_BYTES];

    (void)state;
    memset(a, 'a', sizeof(a));
    for (size_t i = 0; i < sizeof(a); i++)
        dpb_sha256_text(a, i, all + 64 * i);
    dpb_sha256_text(all, 200 * 64, text);
    assert_string_equal(text, "019f2b9f1af27a53a1f046da7e98af2c179f431e4b5bebb000e74040917a4123");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_known_answers),
            cmocka_unit_test(test_every_length),
    };
    return DPB_RUN_TESTS(tests);
}

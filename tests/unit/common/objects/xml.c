// common/objects/xml.c: answers as S3 stores write them, and malformed texts.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/objects/xml.h"
#include "tests/test.h"

struct rows {
    char text[4096];
    lh_err fails;
};

static lh_err note(void *arg, const struct lh_xml_row *row)
{
    struct rows *r = arg;
    size_t n = strlen(r->text);
    snprintf(r->text + n, sizeof r->text - n, "%s=%s;", row->key, row->value);
    return r->fails;
}

static lh_err read_rows(const char *xml, struct rows *r)
{
    r->text[0] = 0;
    return lh_xml_rows(lh_span_str(xml), "Contents", "Key", "Size", note, r);
}

static const char LISTING[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
    "<Prefix>run/</Prefix><IsTruncated>true</IsTruncated><!-- <Contents> -->"
    "<Contents><Key>run/a&amp;b</Key><Size>12</Size><Owner><ID>x</ID></Owner></Contents>"
    "<Contents><Size>7</Size><Key>run/&#x63;&#99;</Key><NextContinuationToken>no</"
    "NextContinuationToken></Contents>"
    "<NextContinuationToken>t&lt;1</NextContinuationToken><Empty/></ListBucketResult>";

TEST(a_listing_is_read)
{
    struct rows r = {.fails = LH_OK};
    char text[64];
    assert_int_equal(read_rows(LISTING, &r), LH_OK);
    assert_string_equal(r.text, "run/a&b=12;run/cc=7;");
    lh_xml_find(lh_span_str(LISTING), "NextContinuationToken", "Contents", text, sizeof text);
    assert_string_equal(text, "t<1");
    lh_xml_find(lh_span_str(LISTING), "IsTruncated", NULL, text, sizeof text);
    assert_string_equal(text, "true");
    lh_xml_find(lh_span_str(LISTING), "Absent", NULL, text, sizeof text);
    assert_string_equal(text, "");
    lh_xml_find(lh_span_str(LISTING), "Prefix", NULL, text, 4);
    assert_string_equal(text, "run");
    r.fails = LH_ERR_TOO_LARGE; // the caller's error ends the reading
    assert_int_equal(read_rows(LISTING, &r), LH_ERR_TOO_LARGE);
    assert_string_equal(r.text, "run/a&b=12;");
}

TEST(malformed_listings_are_refused)
{
    struct rows r = {.fails = LH_OK};
    char text[3 * LH_XML_TEXT_BYTES];
    static const char *const bad[] = {
        "",
        "no XML",
        "<Contents><Key>a</Key>", // truncated
        "<Contents><Key>a&nbsp;</Key></Contents>",
        "<Contents><Key>&#xfff;</Key></Contents>",
        "<Contents><Key>&#0;</Key></Contents>",
        "<a <b",
        "<",
        "<>",
        "<a><!-- no end ",
        "<a><?",
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++)
        assert_int_equal(read_rows(bad[i], &r), LH_ERR_MALFORMED);
    int n = snprintf(text, sizeof text, "<Contents><Key>");
    memset(text + n, 'k', 2 * LH_XML_TEXT_BYTES);
    snprintf(text + n + 2 * LH_XML_TEXT_BYTES, 64, "</Key></Contents>");
    assert_int_equal(read_rows(text, &r), LH_ERR_MALFORMED);
    assert_int_equal(read_rows("<ListBucketResult/>", &r), LH_OK); // an empty listing
    assert_string_equal(r.text, "");
}

TEST(texts_are_decoded)
{
    struct rows r = {.fails = LH_OK};
    char text[3 * LH_XML_TEXT_BYTES], want[2 * LH_XML_TEXT_BYTES];
    static const struct {
        const char *key, *is; // NULL: refused
    } row[] = {{"&lt;&gt;&quot;&apos;&amp;", "<>\"'&"},
               {"&#127;&#x7F;&#x7f;", "\x7f\x7f\x7f"},
               {"&#9;", "\t"},
               {"&#128;", NULL},
               {"&#x80;", NULL},
               {"&#1a;", NULL}, // no decimal digit
               {"&#xg;", NULL},
               {"&#;", NULL},
               {"&#x;", NULL},
               {"&#65", NULL}, // without its end
               {"&am", NULL},
               {"&LT;", NULL}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        snprintf(text, sizeof text, "<Contents><Key>%s</Key><Size>1</Size></Contents>", row[i].key);
        assert_int_equal(read_rows(text, &r), row[i].is ? LH_OK : LH_ERR_MALFORMED);
        snprintf(want, sizeof want, "%s=1;", row[i].is ? row[i].is : "");
        if (row[i].is) assert_string_equal(r.text, want);
    }
    int n = snprintf(text, sizeof text, "<Contents><Key>"); // the longest text
    memset(text + n, 'k', LH_XML_TEXT_BYTES - 1);
    snprintf(text + n + LH_XML_TEXT_BYTES - 1, 64, "</Key></Contents>");
    assert_int_equal(read_rows(text, &r), LH_OK);
    assert_int_equal(strlen(r.text), LH_XML_TEXT_BYTES - 1 + 2);
}

// Fields outside a row, single tags, and tags with attributes or a name that nobody asks for.
TEST(other_tags_are_passed_over)
{
    struct rows r = {.fails = LH_OK};
    char text[256], found[16];
    char tag[LH_XML_NAME_BYTES + 1] = "";
    memset(tag, 'n', LH_XML_NAME_BYTES);
    snprintf(text, sizeof text,
             "<%s>1</%s><Key>x</Key><Contents a=\"1\"><Key>a</Key><Key/>"
             "<Size\n>1</Size></Contents><Contents/><Size>2</Size>",
             tag, tag);
    assert_int_equal(read_rows(text, &r), LH_OK);
    assert_string_equal(r.text, "a=1;");
    lh_xml_find(lh_span_str(text), "Key", "Contents", found, sizeof found);
    assert_string_equal(found, "x");
    lh_xml_find(lh_span_str(text), "Size", "Contents", found, sizeof found);
    assert_string_equal(found, "2");
    lh_xml_find(lh_span_str("<a>1</a><b"), "b", NULL, found, sizeof found);
    assert_string_equal(found, "");
    assert_int_equal(read_rows("<Contents></Contents>", &r), LH_OK); // both fields are empty
    assert_string_equal(r.text, "=;");
}

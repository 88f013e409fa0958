// Answers that every role gives. See answer.h.
#include "server/answer.h"

#include "common/net/wire_admin.h"

void ps_answer_health(struct lh_request *rq, bool serving)
{
    struct lh_health_check_response out = {.status = serving ? LH_SERVING : LH_NOT_SERVING};
    lh_answer(rq, LH_MESSAGE(health_check_response, &out));
}

void ps_answer_json(struct lh_request *rq, lh_err err, struct lh_buf *json)
{
    lh_put_u8(json, 0);
    struct lh_status_reply out = {.json = (const char *)json->data};
    if (!err) err = lh_buf_err(json);
    if (err)
        lh_reply_error(rq, err, NULL);
    else
        lh_answer(rq, LH_MESSAGE(status_reply, &out));
    lh_buf_free(json);
}

// Answers that every role gives. See answer.h.
#include "server/answer.h"

#include "longhaul/v1/health.pb-c.h"
#include "longhaul/v1/member.pb-c.h"

void ps_answer_health(struct lh_request *rq, bool serving)
{
    Grpc__Health__V1__HealthCheckResponse out = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    out.status = serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                         : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    lh_reply(rq, &out.base);
}

void ps_answer_json(struct lh_request *rq, lh_err err, struct lh_buf *json)
{
    Longhaul__V1__StatusReply out = LONGHAUL__V1__STATUS_REPLY__INIT;
    lh_put_u8(json, 0);
    out.json = (char *)json->data;
    if (!err) err = lh_buf_err(json);
    if (err)
        lh_reply_error(rq, err, NULL);
    else
        lh_reply(rq, &out.base);
    lh_buf_free(json);
}

/* Whose turn it is: the request that a connection sends next, and what waits for its stream. */
#include "state.h"

/* splitmix64 (Steele, Lea, Flood 2014): payload choice that depends on seed and turn alone. */
static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

uint32_t next_payload(engine *e, connection *c)
{
    uint64_t who = c - e->connections, turn = c->turn++;
    if (!e->streams)
        return mixed(e->seed ^ mixed(who << 40 ^ turn)) % e->payload_count;
    uint64_t samples = e->payload_count / e->streams;
    return who * samples + turn % samples;
}

connection *stream_of(engine *e, uint32_t payload)
{
    return &e->connections[payload / (e->payload_count / e->streams)];
}

void hold(engine *e, connection *c, int64_t due, uint32_t payload)
{
    if (e->latest_only && c->held) {
        engine_miss(e, c->held->due, c->held->payload, DROPPED, now_ns());
        c->held->due = due;
        c->held->payload = payload;
        return;
    }
    frame *f = malloc(sizeof *f);
    if (!f) {
        e->lost++;
        return;
    }
    *f = (frame){due, payload, NULL};
    *(c->held ? &c->last_held->next : &c->held) = f;
    c->last_held = f;
    e->held++;
}

bool too_late(engine *e, int64_t due, int64_t now)
{
    return e->drop_after_ns && now - due >= e->drop_after_ns;
}

void give_up_held(engine *e)
{
    for (int i = 0; i < e->connection_count; i++)
        for (connection *c = &e->connections[i]; c->held; e->held--) {
            frame f = take_held(c);
            engine_miss(e, f.due, f.payload, NOT_SENT, now_ns());
        }
}

frame take_held(connection *c)
{
    frame first = *c->held;
    free(c->held);
    c->held = first.next;
    return first;
}

/* The native load engine: one thread, one epoll set, prepared requests out, records in.
 *
 * Python decides what is sent and judges what came back; this file only keeps time. It exists
 * because an interpreter between two system calls would be measured as the server's latency.
 */
#include "state.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* the same on every architecture */
#endif

static void push(engine *e, const record *r)
{
    uint64_t head = atomic_load_explicit(&e->head, memory_order_relaxed);
    if (head - atomic_load_explicit(&e->tail, memory_order_acquire) == RING) {
        e->lost++;
        return;
    }
    e->ring[head % RING] = *r;
    atomic_store_explicit(&e->head, head + 1, memory_order_release);
}

void disconnect(connection *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static bool connect_to(engine *e, connection *c)
{
    int one = 1;
    c->fd = socket(e->address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return false;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    c->wants_write = false;
    if ((connect(c->fd, e->address->ai_addr, e->address->ai_addrlen) == 0 || errno == EINPROGRESS) &&
        epoll_ctl(e->epoll, EPOLL_CTL_ADD, c->fd, &event) == 0)
        return true;
    disconnect(c);
    return false;
}

static void want_write(engine *e, connection *c, bool wanted)
{
    if (c->wants_write == wanted)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(e->epoll, EPOLL_CTL_MOD, c->fd, &event);
    c->wants_write = wanted;
}

static bool write_some(engine *e, connection *c)
{
    request *q = &e->requests[c->payload];
    while (c->written < q->length) {
        ssize_t n = send(c->fd, q->bytes + c->written, q->length - c->written, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        c->written += n;
    }
    want_write(e, c, c->written < q->length);
    return true;
}

static enum checked check(engine *e, record *r, const char *body)
{
    request *q = &e->requests[r->payload];
    int count = atomic_load_explicit(&q->right_count, memory_order_acquire);
    bool described = false;
    for (int i = 0; i < count; i++) {
        right_reply *k = &q->right[i];
        if (k->length != r->body_length || k->json_length != r->json_length)
            continue;
        uint32_t head = k->json_length < 0 ? k->length : (uint32_t)k->json_length;
        if (head > k->length || memcmp(k->body, body, head) != 0)
            continue;
        described = true;
        if (memcmp(k->body + head, body + head, k->length - head) == 0)
            return EXACT;
    }
    if (described && (!e->values_every || ++q->answers % e->values_every))
        return DESCRIBED;
    if (e->waiting_bytes + r->body_length > WAITING_BYTES || !(r->body = (uint64_t)malloc(r->body_length + 1)))
        return described ? DESCRIBED : UNCHECKED;
    e->waiting_bytes += r->body_length;
    memcpy((char *)r->body, body, r->body_length);
    return PENDING;
}

static enum outcome judge(engine *e, connection *c)
{
    record *r = &c->now;
    r->status = c->parsed.status;
    r->body_length = c->parsed.body_length;
    r->json_length = c->parsed.json_length;
    if (r->status >= 500)
        return SERVER_FAULT;
    if (r->status >= 400)
        return CLIENT_FAULT;
    if (r->status != 200 || r->json_length > (int64_t)r->body_length)
        return WRONG_ANSWER;
    r->checked = check(e, r, c->data + c->parsed.body);
    return OK;
}

static void send_closed(engine *e, connection *c, int64_t due);
static void send_held(engine *e, connection *c);

static void give_back(engine *e, connection *c)
{
    if (c->closed_loop)
        e->users--;
    c->closed_loop = false;
    e->idle[e->idle_count++] = c;
    if (c->held)
        append(&e->ready, c);
}

/* What a closed-loop connection does after a reply. */
static void go_on(engine *e, connection *c, int64_t now)
{
    if (e->users > e->wanted_users)
        give_back(e, c);
    else if (!e->together) {
        c->until = now;
        append(&e->ready, c);
    }
}

/* Replies that came together are all read before the next requests go out. */
static void send_ready(engine *e)
{
    while (e->ready.first) {
        connection *c = e->ready.first;
        take_out(&e->ready, c);
        if (c->held)
            send_held(e, c);
        else
            send_closed(e, c, c->until);
    }
}

void engine_finish(engine *e, connection *c, enum outcome outcome, int64_t now)
{
    c->now.outcome = outcome;
    c->now.done = now;
    push(e, &c->now);
    take_out(&e->in_flight, c);
    c->in_flight = false;
    e->flying--;
    bool whole = outcome != TIMEOUT && outcome != CONNECTION_ERROR;
    if (!whole || !c->parsed.keep_alive || c->written < e->requests[c->payload].length)
        disconnect(c);
    if (!c->closed_loop) {
        if (!e->streams)
            give_back(e, c);
        else if (c->held)
            append(&e->ready, c);
        return;
    }
    e->closed_busy--;
    if (outcome == CONNECTION_ERROR) {
        c->until = now + PAUSE_NS;
        c->paused = true;
        e->paused_count++;
        append(&e->paused, c);
    } else {
        go_on(e, c, now);
    }
}

static void send_request(engine *e, connection *c, int64_t due, uint32_t payload, uint64_t query)
{
    int64_t now = now_ns();
    c->now = (record){.due = due, .sent = now, .payload = payload, .query = query, .json_length = -1};
    c->payload = payload;
    c->written = c->length = 0;
    c->until = now + e->timeout_ns;
    c->in_flight = true;
    reply_reset(&c->parsed);
    append(&e->in_flight, c);
    e->flying++;
    if (c->closed_loop)
        e->closed_busy++;
    if ((c->fd < 0 && !connect_to(e, c)) || !write_some(e, c))
        engine_finish(e, c, CONNECTION_ERROR, now_ns());
}

static void send_closed(engine *e, connection *c, int64_t due)
{
    int64_t fixed = e->fixed_due;
    if ((fixed < 0 ? due : fixed) >= e->end_ns || e->remaining == 0)
        return;
    if (e->remaining > 0)
        e->remaining--;
    send_request(e, c, fixed < 0 ? due : fixed, next_payload(e, c), e->query);
}

/* The first that is not too late. */
static void send_held(engine *e, connection *c)
{
    bool sent = false;
    while (c->held && !sent) {
        frame f = take_held(c);
        int64_t now = now_ns();
        sent = !too_late(e, f.due, now);
        if (sent)
            send_request(e, c, f.due, f.payload, ++e->query);
        else
            engine_miss(e, f.due, f.payload, DROPPED, now);
        e->held--; /* after it is in flight: Python is not to see neither */
    }
}

/* Connections that Locust added get to work; a query whose replies are all there is followed. */
static void start_users(engine *e, int64_t now)
{
    int wanted = e->wanted_users;
    while (e->users < wanted && e->idle_count) {
        connection *c = e->idle[--e->idle_count];
        c->closed_loop = true;
        c->turn = e->streams ? 0 : c->turn;
        e->users++;
    }
    bool sending = now < e->end_ns && e->remaining != 0;
    if (e->users <= wanted && (!sending || e->closed_busy + e->paused_count == e->users))
        return;
    if (e->together && (e->closed_busy || e->paused_count))
        return;
    e->query++;
    for (int i = 0; i < e->connection_count; i++) {
        connection *c = &e->connections[i];
        if (!c->closed_loop || c->in_flight || c->paused)
            continue;
        if (e->users > wanted)
            give_back(e, c);
        else
            send_closed(e, c, now);
    }
}

static void send_in_turn(engine *e, int64_t due, uint32_t payload)
{
    connection *c = stream_of(e, payload);
    if (c->in_flight || c->held || c->paused)
        hold(e, c, due, payload);
    else
        send_request(e, c, due, payload, ++e->query);
}

void engine_miss(engine *e, int64_t due, uint32_t payload, enum outcome outcome, int64_t now)
{
    record missed = {.due = due, .sent = now, .done = now, .payload = payload,
                     .json_length = -1, .outcome = outcome};
    push(e, &missed);
}

static void send_due(engine *e)
{
    uint64_t tail = e->due_tail, head = atomic_load_explicit(&e->due_head, memory_order_acquire);
    for (; tail < head; tail++) {
        int64_t due = e->due[tail % SCHEDULE], now = now_ns(), end = e->end_ns;
        if (due >= end && now >= end)
            continue; /* the end may still be moved on until it has come */
        if (due > now)
            break;
        uint32_t payload = e->due_payload[tail % SCHEDULE];
        if (e->streams)
            send_in_turn(e, due, payload);
        else if (e->idle_count)
            send_request(e, e->idle[--e->idle_count], due, payload, ++e->query);
        else
            engine_miss(e, due, payload, NOT_SENT, now);
    }
    atomic_store_explicit(&e->due_tail, tail, memory_order_release);
}

static void expire(engine *e, int64_t now)
{
    while (e->in_flight.first && e->in_flight.first->until <= now)
        engine_finish(e, e->in_flight.first, TIMEOUT, now);
    while (e->paused.first && e->paused.first->until <= now) {
        connection *c = e->paused.first;
        take_out(&e->paused, c);
        c->paused = false;
        e->paused_count--;
        go_on(e, c, now);
    }
}

static bool grow(connection *c)
{
    size_t wanted = c->parsed.body && c->parsed.content_length > 0
                        ? c->parsed.body + (size_t)c->parsed.content_length
                        : c->capacity;
    if (wanted < c->length + LEAST_READ)
        wanted = 2 * (c->length + LEAST_READ);
    char *data = realloc(c->data, wanted);
    if (!data)
        return false;
    c->data = data;
    c->capacity = wanted;
    return true;
}

static void receive(engine *e, connection *c)
{
    if (c->capacity - c->length < LEAST_READ && !grow(c)) {
        engine_finish(e, c, CONNECTION_ERROR, now_ns());
        return;
    }
    ssize_t n = recv(c->fd, c->data + c->length, c->capacity - c->length, 0);
    int64_t now = now_ns();
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (!c->in_flight) {
        disconnect(c); /* closed by the server while idle, or bytes that nobody asked for */
        return;
    }
    if (n > 0 && !c->now.first_byte)
        c->now.first_byte = now;
    c->length += n > 0 ? n : 0;
    int found = n < 0 ? REPLY_BROKEN : reply_parse(&c->parsed, c->data, c->length, n == 0);
    if (found != REPLY_MORE)
        engine_finish(e, c, found == REPLY_WHOLE ? judge(e, c) : CONNECTION_ERROR, now);
}

/* Events that are there, or that come before the next thing is due. */
static int wait_for_events(engine *e, struct epoll_event *events)
{
    int64_t now = now_ns(), until = now + LONGEST_WAIT_NS;
    bool scheduled = e->due_tail < atomic_load_explicit(&e->due_head, memory_order_acquire);
    if (scheduled && e->due[e->due_tail % SCHEDULE] < until)
        until = e->due[e->due_tail % SCHEDULE];
    if (e->in_flight.first && e->in_flight.first->until < until)
        until = e->in_flight.first->until;
    if (e->paused.first && e->paused.first->until < until)
        until = e->paused.first->until;
    int64_t left = until > now ? until - now : 0;
    if (!left || !scheduled)
        return epoll_wait(e->epoll, events, EVENTS, (left + 999999) / 1000000);
    /* epoll_wait counts in milliseconds; a schedule needs less (epoll_pwait2: Linux 5.11). */
    struct timespec wait = {left / 1000000000, left % 1000000000};
    int count = syscall(SYS_epoll_pwait2, e->epoll, events, EVENTS, &wait, NULL, 0);
    if (count >= 0 || errno != ENOSYS)
        return count;
    struct pollfd set = {.fd = e->epoll, .events = POLLIN};
    ppoll(&set, 1, &wait, NULL);
    return epoll_wait(e->epoll, events, EVENTS, 0);
}

/* Let this thread preempt its own process's book-keeping at once when a request is due: a short
 * slice (sched(7), custom slices since Linux 6.12; older kernels go by the nice value alone) and
 * timers without slack. */
static void be_punctual(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } wanted = {.size = sizeof wanted, .runtime = 100000};
    syscall(SYS_sched_setattr, 0, &wanted, 0);
    prctl(PR_SET_TIMERSLACK, 1);
}

void *engine_run(void *given)
{
    engine *e = given;
    struct epoll_event events[EVENTS];
    be_punctual();
    while (!e->stopping) {
        int64_t now = now_ns();
        if (atomic_exchange(&e->giving_up, 0))
            give_up_held(e);
        send_due(e);
        expire(e, now);
        send_ready(e);
        start_users(e, now);
        int count = wait_for_events(e, events);
        for (int i = 0; i < count; i++) {
            connection *c = events[i].data.ptr;
            if (c->fd < 0)
                continue;
            if (events[i].events & EPOLLOUT && c->in_flight && !write_some(e, c))
                engine_finish(e, c, CONNECTION_ERROR, now_ns());
            else if (events[i].events & ~EPOLLOUT)
                receive(e, c);
            send_due(e);
        }
        send_ready(e);
    }
    return NULL;
}

-- What sinks still have to deliver, or have given up.
CREATE TABLE allswell.delivery (
    sink          text COLLATE "C" NOT NULL,
    xid           bigint  NOT NULL,
    number        bigint  NOT NULL,
    part          integer NOT NULL,
    id            text    NOT NULL,
    target        text    NOT NULL,
    at            bigint  NOT NULL,
    body          text    NOT NULL,
    tries         integer NOT NULL,
    next_at       bigint  NOT NULL,
    failing_since bigint,
    given_up      boolean NOT NULL,
    reason        text    NOT NULL,
    PRIMARY KEY (sink, xid, number, part)
);

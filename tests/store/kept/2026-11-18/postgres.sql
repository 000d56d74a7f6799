-- left at 1794978496204
CREATE SCHEMA allswell;
CREATE TABLE allswell.agent (
    id text NOT NULL COLLATE pg_catalog."C",
    misses bigint NOT NULL,
    missed_at bigint NOT NULL,
    stalled boolean NOT NULL,
    standing text DEFAULT ''::text NOT NULL
);
CREATE TABLE allswell.attempt (
    task text NOT NULL COLLATE pg_catalog."C",
    token bigint NOT NULL,
    agent text NOT NULL COLLATE pg_catalog."C",
    granted_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    outcome text NOT NULL,
    command text NOT NULL,
    detail text NOT NULL,
    late text,
    afterwards text
);
CREATE TABLE allswell.bar (
    task text NOT NULL COLLATE pg_catalog."C",
    agent text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE allswell.cursor (
    follower text NOT NULL COLLATE pg_catalog."C",
    xid bigint NOT NULL,
    id bigint NOT NULL
);
CREATE TABLE allswell.delivery (
    sink text NOT NULL COLLATE pg_catalog."C",
    xid bigint NOT NULL,
    number bigint NOT NULL,
    part integer NOT NULL,
    id text NOT NULL,
    target text NOT NULL,
    at bigint NOT NULL,
    body text NOT NULL,
    tries integer NOT NULL,
    next_at bigint NOT NULL,
    failing_since bigint,
    given_up boolean NOT NULL,
    reason text NOT NULL
);
CREATE TABLE allswell.journal (
    id bigint NOT NULL,
    xid xid8 DEFAULT GREATEST(pg_current_xact_id(), (((((pg_snapshot_xmax(pg_current_snapshot()))::text)::bigint - 1))::text)::xid8) NOT NULL,
    at bigint NOT NULL,
    events text NOT NULL
);
CREATE VIEW allswell.event AS
 SELECT j.xid,
    (((j.id * 1000) + t.place) - 1) AS id,
    j.at,
    (t.told ->> 'kind'::text) AS kind,
    (t.told ->> 'task'::text) AS task,
    (t.told ->> 'run'::text) AS run,
    (t.told ->> 'agent'::text) AS agent,
    ((t.told ->> 'token'::text))::bigint AS token,
    COALESCE((t.told ->> 'data'::text), '{}'::text) AS data
   FROM (allswell.journal j
     CROSS JOIN LATERAL json_array_elements((j.events)::json) WITH ORDINALITY t(told, place));
CREATE TABLE allswell.expense (
    task text NOT NULL,
    token bigint NOT NULL,
    agent text NOT NULL,
    role text NOT NULL,
    run text,
    told_at bigint NOT NULL,
    cost bigint,
    given bigint,
    written bigint
);
ALTER TABLE allswell.journal ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME allswell.journal_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE allswell.lane (
    id integer NOT NULL,
    role text NOT NULL,
    services text NOT NULL
);
ALTER TABLE allswell.lane ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME allswell.lane_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE allswell.lease (
    task text NOT NULL COLLATE pg_catalog."C",
    token bigint NOT NULL,
    agent text NOT NULL COLLATE pg_catalog."C",
    granted_at bigint NOT NULL,
    deadline bigint NOT NULL,
    length bigint,
    idle bigint,
    ask_every bigint NOT NULL,
    ask_wait bigint NOT NULL,
    grace bigint NOT NULL,
    command text NOT NULL COLLATE pg_catalog."C",
    judged bigint NOT NULL,
    stalled_at bigint,
    renewed_at bigint NOT NULL,
    progress double precision,
    note text NOT NULL,
    due_at bigint,
    quiet bigint,
    own bigint
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000');
CREATE TABLE allswell.mark (
    line text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    at bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE allswell.meta (
    key text NOT NULL,
    value text NOT NULL
);
CREATE TABLE allswell.question (
    id text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL COLLATE pg_catalog."C",
    run text COLLATE pg_catalog."C",
    kind text NOT NULL,
    text text NOT NULL,
    options text NOT NULL,
    asked_at bigint NOT NULL,
    asked_by text NOT NULL,
    closed_at bigint,
    choice text,
    answer text NOT NULL,
    answered_by text NOT NULL,
    command text NOT NULL,
    waited boolean DEFAULT false NOT NULL,
    dismissed_at bigint,
    dismissed_by text DEFAULT ''::text NOT NULL
);
CREATE TABLE allswell.ready (
    task text NOT NULL COLLATE pg_catalog."C",
    lane integer NOT NULL,
    rank bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000');
CREATE TABLE allswell.run (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    created_at bigint NOT NULL,
    deadline bigint,
    ended_at bigint,
    reason text NOT NULL,
    command text NOT NULL,
    asked bigint DEFAULT 0 NOT NULL,
    stands_since bigint,
    stood bigint DEFAULT 0 NOT NULL,
    moves bigint DEFAULT 0 NOT NULL
);
CREATE TABLE allswell.service (
    id text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL
);
CREATE TABLE allswell.spread (
    seq bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL,
    reason text NOT NULL,
    replaced_by text NOT NULL
);
ALTER TABLE allswell.spread ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME allswell.spread_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE allswell.task (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    run text COLLATE pg_catalog."C",
    role text NOT NULL,
    lane integer NOT NULL,
    priority integer NOT NULL,
    state text NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    spec text NOT NULL,
    record text NOT NULL,
    payload text NOT NULL,
    result text,
    rank bigint NOT NULL,
    attempt text
)
WITH (fillfactor='85');
CREATE TABLE allswell.timer (
    owner text NOT NULL COLLATE pg_catalog."C",
    due_at bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000');
CREATE TABLE allswell.waits (
    task text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C"
);
INSERT INTO allswell.agent VALUES ('eve', 15, 1794978496050, true, '');
INSERT INTO allswell.attempt VALUES ('t_1m7pgwebx1namtre', 2, 'ada', 1794978494862, 1794978494865, 'failed:validation', 'djvrn2633gbsffsg.47', 'no such file', NULL, NULL);
INSERT INTO allswell.bar VALUES ('t_tk3rhn9rby1h9em9', 'cato');
INSERT INTO allswell.cursor VALUES ('kept', 944, 86000);
INSERT INTO allswell.cursor VALUES ('sink.ops', 1, 2);
INSERT INTO allswell.delivery VALUES ('ops', 1, 1, 0, 'msg_ops_1', 'https://example.org/a', 1794978494879, '{"text": "hello"}', 0, 0, NULL, false, '');
INSERT INTO allswell.delivery VALUES ('ops', 1, 2, 0, 'msg_ops_2', 'https://example.org/b', 1794978494879, '{}', 4, 1794978494879, 1794978494879, true, '410 Gone');
INSERT INTO allswell.expense VALUES ('t_1m7pgwe8b26a03nx', 1, 'ada', 'writer', 'r_1m7pgwe7z9drs970', 1794978494748, 2500000, 90000, 4000);
INSERT INTO allswell.expense VALUES ('t_1m7pgwe934k3b0yy', 1, 'ada', '', NULL, 1794978494778, 1200000, NULL, 70);
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (2, '730', 1794978494047, '[{"kind":"task_submitted","task":"t_1m7pgwdhm3w08ygj","data":{"name":"done"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (3, '733', 1794978494068, '[{"kind":"task_claimed","task":"t_1m7pgwdhm3w08ygj","agent":"ada","token":1,"data":{"deadline":1794979394068}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (4, '734', 1794978494078, '[{"kind":"task_completed","task":"t_1m7pgwdhm3w08ygj","agent":"ada","token":1,"data":{"elapsed_ms":10}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (5, '738', 1794978494100, '[{"kind":"task_submitted","task":"t_1m7pgwdm72387yk0","data":{"name":"failed"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (6, '741', 1794978494124, '[{"kind":"task_submitted","task":"t_1m7pgwdnbcgd4a9e","data":{"name":"skipped"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (7, '742', 1794978494129, '[{"kind":"task_claimed","task":"t_1m7pgwdm72387yk0","agent":"ada","token":1,"data":{"deadline":1794979394129}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (8, '744', 1794978494136, '[{"kind":"task_failed","task":"t_1m7pgwdm72387yk0","agent":"ada","token":1,"data":{"reason":"no such table; a bad request is not retried","message":"no such table"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (9, '746', 1794978494165, '[{"kind":"task_submitted","task":"t_1m7pgwdpn3qf7tqx","data":{"name":"cancelled"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (10, '748', 1794978494171, '[{"kind":"task_cancelled","task":"t_1m7pgwdpn3qf7tqx","data":{"reason":"not wanted any more"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (11, '750', 1794978494174, '[{"kind":"task_submitted","task":"t_1m7pgwdpz9tpjx5b","data":{"name":"too big"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (12, '752', 1794978494182, '[{"kind":"task_claimed","task":"t_1m7pgwdpz9tpjx5b","agent":"ada","token":1,"data":{"deadline":1794979394182}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (13, '755', 1794978494196, '[{"kind":"question_asked","task":"t_1m7pgwdpz9tpjx5b","data":{"question":"q_1m7pgwdpz9tpjx5b.1","kind":"agent","text":"This is too much for one.","options":["Split task into smaller subtasks","Skip task and continue"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (14, '757', 1794978494207, '[{"kind":"question_answered","task":"t_1m7pgwdpz9tpjx5b","data":{"question":"q_1m7pgwdpz9tpjx5b.1","choice":"split","by":"cleo"}},{"kind":"task_split","task":"t_1m7pgwdpz9tpjx5b","data":{"subtasks":["t_1m7pgwdqs04vpzx6"]}},{"kind":"task_submitted","task":"t_1m7pgwdqs04vpzx6","data":{"name":"part"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (15, '756', 1794978494209, '[{"kind":"task_skipped","task":"t_1m7pgwdnbcgd4a9e","data":{"reason":"t_1m7pgwdm72387yk0 was failed: no such table; a bad request is not retried"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (16, '760', 1794978494219, '[{"kind":"task_submitted","task":"t_1m7pgwdrb4hd2fkr","data":{"name":"needs the parked"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (17, '765', 1794978494227, '[{"kind":"task_submitted","task":"t_1m7pgwdrkftvfzwc","data":{"name":"parked by"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (18, '768', 1794978494239, '[{"kind":"task_claimed","task":"t_1m7pgwdrkftvfzwc","agent":"ada","token":1,"data":{"deadline":1794979394239}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (19, '770', 1794978494253, '[{"kind":"service_parked","task":"t_1m7pgwdrkftvfzwc","data":{"service":"parked","until":1794985694253}},{"kind":"task_returned","task":"t_1m7pgwdrkftvfzwc","agent":"ada","token":1,"data":{"reason":"service_parked"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (20, '777', 1794978494287, '[{"kind":"breaker_opened","data":{"service":"broken","failures":3,"pause_ms":30000}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (21, '782', 1794978494308, '[{"kind":"service_escalated","data":{"service":"locked","cause":"auth","reason":"a refused login is not retried","question":"q_@locked.1"}},{"kind":"question_asked","data":{"question":"q_@locked.1","kind":"service_needs_help","text":"Service locked refuses who we say we are (PermissionError: 401). Calls that meet this are given up. How should we proceed?","options":["It is mended: go on, and ask again if it happens again","Ask again in an hour, if it still happens"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (22, '784', 1794978494317, '[{"kind":"run_opened","run":"r_1m7pgwdvb4r4k3m2","data":{"name":"stands","deadline":1794989294317}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (23, '786', 1794978494326, '[{"kind":"task_submitted","task":"t_1m7pgwdvmbg11ajx","run":"r_1m7pgwdvb4r4k3m2","data":{"name":"asks"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (24, '789', 1794978494335, '[{"kind":"task_claimed","task":"t_1m7pgwdvmbg11ajx","run":"r_1m7pgwdvb4r4k3m2","agent":"ben","token":1,"data":{"deadline":1794979394335}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (25, '791', 1794978494351, '[{"kind":"question_asked","task":"t_1m7pgwdvmbg11ajx","run":"r_1m7pgwdvb4r4k3m2","data":{"question":"q_1m7pgwdvmbg11ajx.1","kind":"agent","text":"Which table?","options":["Try again as it is","Skip task and continue"]}},{"kind":"run_stands","run":"r_1m7pgwdvb4r4k3m2","data":{"question":"q_1m7pgwdvmbg11ajx.1"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (26, '793', 1794978494365, '[{"kind":"task_submitted","task":"t_1m7pgwdwx3145p9a","data":{"name":"answered"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (27, '796', 1794978494376, '[{"kind":"task_claimed","task":"t_1m7pgwdwx3145p9a","agent":"ben","token":1,"data":{"deadline":1794979394376}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (28, '798', 1794978494385, '[{"kind":"question_asked","task":"t_1m7pgwdwx3145p9a","data":{"question":"q_1m7pgwdwx3145p9a.1","kind":"agent","text":"And this one?","options":["Try again as it is","Skip task and continue"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (29, '800', 1794978494395, '[{"kind":"question_answered","task":"t_1m7pgwdwx3145p9a","data":{"question":"q_1m7pgwdwx3145p9a.1","choice":"retry","by":"cleo"}},{"kind":"task_ready","task":"t_1m7pgwdwx3145p9a","data":{"reason":"answered"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (30, '802', 1794978494411, '[{"kind":"task_submitted","task":"t_1m7pgwdybag0chqq","data":{"name":"asks in passing"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (31, '805', 1794978494422, '[{"kind":"task_claimed","task":"t_1m7pgwdybag0chqq","agent":"ben","token":1,"data":{"deadline":1795007294422}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (32, '807', 1794978494430, '[{"kind":"question_asked","task":"t_1m7pgwdybag0chqq","data":{"question":"q_1m7pgwdybag0chqq.1","kind":"agent","text":"By the way?","options":["Try again as it is","Skip task and continue"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (33, '811', 1794978494440, '[{"kind":"task_submitted","task":"t_tk3rhn9rby1h9em9","data":{"name":"ready"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (34, '814', 1794978494455, '[{"kind":"task_submitted","task":"t_1m7pgwdzq0waadyf","data":{"name":"held"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (35, '817', 1794978494465, '[{"kind":"task_submitted","task":"t_1m7pgwdzza1q350z","data":{"name":"waiting"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (36, '818', 1794978494477, '[{"kind":"task_claimed","task":"t_1m7pgwdzq0waadyf","agent":"ada","token":1,"data":{"deadline":1795007294477}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (37, '820', 1794978494483, '[{"kind":"task_checked_in","task":"t_1m7pgwdzq0waadyf","agent":"ada","token":1,"data":{"note":"half of it","progress":0.5}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (38, '822', 1794978494485, '[{"kind":"receipt_written","task":"t_1m7pgwdzq0waadyf","agent":"ada","token":1,"data":{"receipt":"rc_kept.1","status":"partial","path":"receipts/kept.json"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (39, '825', 1794978494490, '[{"kind":"request_sent","task":"t_1m7pgwdzq0waadyf","agent":"ada","token":1,"data":{"request":"t_1m7pgwe0p1sx0tjd","kind":"delegation","to":"expert","timeout_ms":18000000}},{"kind":"task_submitted","task":"t_1m7pgwe0p1sx0tjd","data":{"name":"request"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (40, '828', 1794978494495, '[{"kind":"task_submitted","task":"t_1m7pgwe10fapek22","data":{"name":"leased"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (41, '830', 1794978494511, '[{"kind":"task_claimed","task":"t_1m7pgwe10fapek22","agent":"bob","token":1,"data":{"deadline":1795007294511}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (42, '832', 1794978494523, '[{"kind":"task_submitted","task":"t_1m7pgwe1v32erkrg","data":{"name":"watched"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (43, '835', 1794978494530, '[{"kind":"task_claimed","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"deadline":1795007294530}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (44, '837', 1794978494543, '[{"kind":"task_submitted","task":"t_1m7pgwe2f46xtw14","data":{"name":"delayed"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (45, '839', 1794978494546, '[{"kind":"task_submitted","task":"t_1m7pgwe2j8r3wr9q","data":{"name":"tried again"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (46, '842', 1794978494553, '[{"kind":"task_claimed","task":"t_1m7pgwe2j8r3wr9q","agent":"ada","token":1,"data":{"deadline":1794979394553}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (47, '844', 1794978494560, '[{"kind":"task_returned","task":"t_1m7pgwe2j8r3wr9q","agent":"ada","token":1,"data":{"reason":"service_parked"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (48, '846', 1794978494562, '[{"kind":"task_submitted","task":"t_1m7pgwe327epnt8m","data":{"name":"late"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (49, '848', 1794978494568, '[{"kind":"task_claimed","task":"t_1m7pgwe327epnt8m","agent":"ada","token":1,"data":{"deadline":1794979394568}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (50, '850', 1794978494571, '[{"kind":"task_returned","task":"t_1m7pgwe327epnt8m","agent":"ada","token":1,"data":{"reason":"not now"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (51, '854', 1794978494576, '[{"kind":"run_opened","run":"r_1m7pgwe3e118a4ts","data":{"name":"night","deadline":1795000094576}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (52, '855', 1794978494578, '[{"kind":"task_submitted","task":"t_1m7pgwe3h7m3fvcz","run":"r_1m7pgwe3e118a4ts","data":{"name":"of a run"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (53, '859', 1794978494585, '[{"kind":"run_opened","run":"r_1m7pgwe3q7smbecn","data":{"name":"over","deadline":null}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (54, '861', 1794978494592, '[{"kind":"task_submitted","task":"t_1m7pgwe3zb25m35r","run":"r_1m7pgwe3q7smbecn","data":{"name":"of a run that ended"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (55, '864', 1794978494596, '[{"kind":"run_ended","run":"r_1m7pgwe3q7smbecn","data":{"reason":"enough"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (56, '866', 1794978494624, '[{"kind":"task_cancelled","task":"t_1m7pgwe3zb25m35r","run":"r_1m7pgwe3q7smbecn","data":{"reason":"enough"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (57, '869', 1794978494634, '[{"kind":"run_opened","run":"r_1m7pgwe590t9m06r","data":{"name":"ends","deadline":null}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (58, '871', 1794978494636, '[{"kind":"task_submitted","task":"t_1m7pgwe5aasz8nms","run":"r_1m7pgwe590t9m06r","data":{"name":"of a run that ends"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (59, '874', 1794978494638, '[{"kind":"task_submitted","task":"t_1m7pgwe5ffwmt6p0","data":{"name":"asks others"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (60, '877', 1794978494651, '[{"kind":"task_claimed","task":"t_1m7pgwe5ffwmt6p0","agent":"ben","token":1,"data":{"deadline":1795007294651}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (62, '883', 1794978494675, '[{"kind":"request_sent","task":"t_1m7pgwe5ffwmt6p0","agent":"ben","token":1,"data":{"request":"m_1m7pgwe5ffwmt6p0.ze0njywa","kind":"status_check","to":"ada","timeout_ms":3600000}},{"kind":"task_submitted","task":"m_1m7pgwe5ffwmt6p0.ze0njywa","data":{"name":"write me a haiku"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (63, '885', 1794978494679, '[{"kind":"request_closed","task":"t_1m7pgwe5ffwmt6p0","agent":"ben","token":1,"data":{"request":"m_1m7pgwe5ffwmt6p0.ze0njywa","outcome":"done","reason":"answered"}},{"kind":"task_completed","task":"m_1m7pgwe5ffwmt6p0.ze0njywa","agent":"ada","token":1,"data":{"elapsed_ms":0}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (64, '889', 1794978494695, '[{"kind":"request_sent","task":"t_1m7pgwe5ffwmt6p0","agent":"ben","token":1,"data":{"request":"m_1m7pgwe5ffwmt6p0.sekds7q0","kind":"status_check","to":"bob","timeout_ms":1}},{"kind":"mesh_asked","task":"t_1m7pgwe5ffwmt6p0","agent":"ben","token":1,"data":{"request":"m_1m7pgwe5ffwmt6p0.sekds7q0","kind":"status_check","to":"bob"}},{"kind":"task_submitted","task":"m_1m7pgwe5ffwmt6p0.sekds7q0","data":{"name":"is it up?"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (65, '892', 1794978494700, '[{"kind":"request_expired","task":"t_1m7pgwe5ffwmt6p0","agent":"ben","token":1,"data":{"request":"m_1m7pgwe5ffwmt6p0.sekds7q0","kind":"status_check","to":"bob","attempt":1,"timeout_ms":1,"default_ms":120000,"against":"bob"}},{"kind":"request_blocked","task":"t_1m7pgwe5ffwmt6p0","agent":"ben","token":1,"data":{"request":"m_1m7pgwe5ffwmt6p0.sekds7q0","kind":"status_check","to":"bob","attempts":1,"next":""}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (66, '896', 1794978494729, '[{"kind":"run_opened","run":"r_1m7pgwe7z9drs970","data":{"name":"budget","deadline":null}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (67, '898', 1794978494733, '[{"kind":"task_submitted","task":"t_1m7pgwe8b26a03nx","run":"r_1m7pgwe7z9drs970","data":{"name":"costs"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (68, '901', 1794978494739, '[{"kind":"task_claimed","task":"t_1m7pgwe8b26a03nx","run":"r_1m7pgwe7z9drs970","agent":"ada","token":1,"data":{"deadline":1795007294739}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (69, '902', 1794978494748, '[{"kind":"attempt_cost","task":"t_1m7pgwe8b26a03nx","run":"r_1m7pgwe7z9drs970","agent":"ada","token":1,"data":{"cost_usd":2.5,"given":90000,"written":4000}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (70, '903', 1794978494755, '[{"kind":"task_submitted","task":"t_1m7pgwe934k3b0yy","data":{"name":"costs too much"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (71, '907', 1794978494774, '[{"kind":"task_claimed","task":"t_1m7pgwe934k3b0yy","agent":"ada","token":1,"data":{"deadline":1794979394774}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (72, '908', 1794978494778, '[{"kind":"attempt_cost","task":"t_1m7pgwe934k3b0yy","agent":"ada","token":1,"data":{"cost_usd":1.2,"given":null,"written":70}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (73, '912', 1794978494782, '[{"kind":"cost_limit","task":"t_1m7pgwe934k3b0yy","agent":"ada","token":1,"data":{"cost_usd":1.2}},{"kind":"question_asked","task":"t_1m7pgwe934k3b0yy","data":{"question":"q_1m7pgwe934k3b0yy.1","kind":"cost_limit","text":"Task costs too much has cost $1.20 in its attempt, and may cost $1.00. Its work is kept. How should we proceed?","options":["Go on with more money for this task","Skip task and continue"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (75, '914', 1794978494796, '[{"kind":"question_answered","task":"t_1m7pgwe934k3b0yy","data":{"question":"q_1m7pgwe934k3b0yy.1","choice":"increase_cost","by":"cleo"}},{"kind":"task_ready","task":"t_1m7pgwe934k3b0yy","data":{"reason":"answered"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (76, '917', 1794978494797, '[{"kind":"task_submitted","task":"t_1m7pgweadeythnwx","data":{"name":"to be verified"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (77, '920', 1794978494805, '[{"kind":"task_claimed","task":"t_1m7pgweadeythnwx","agent":"ada","token":1,"data":{"deadline":1794979394805}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (78, '921', 1794978494806, '[{"kind":"task_verified","task":"t_1m7pgweadeythnwx","agent":"ada","token":1,"data":{"passed":false,"verify":"make test","why":"exit code 2","said":"2 failed","elapsed_ms":700,"failed":1,"most":3,"by":""}},{"kind":"task_sent_back","task":"t_1m7pgweadeythnwx","agent":"ada","token":1,"data":{"failed":1,"most":3}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (79, '926', 1794978494822, '[{"kind":"key_created","data":{"name":"ada","rights":["agent"],"roles":["writer"],"agents":["ada"],"expires_at":null,"by":"cleo"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (80, '929', 1794978494828, '[{"kind":"key_created","data":{"name":"op","rights":["operator"],"roles":[],"agents":[],"expires_at":1796058494823,"by":""}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (81, '932', 1794978494834, '[{"kind":"key_created","data":{"name":"gone","rights":["viewer"],"roles":[],"agents":[],"expires_at":null,"by":""}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (82, '935', 1794978494837, '[{"kind":"key_revoked","data":{"name":"gone","by":"cleo"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (83, '938', 1794978494842, '[{"kind":"link_made","data":{"name":"op","by":"cleo"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (84, '940', 1794978494844, '[{"kind":"session_opened","data":{"name":"op","how":"link"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (85, '941', 1794978494844, '[{"kind":"task_submitted","task":"t_1m7pgwebx1namtre","data":{"name":"dismissed"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (86, '944', 1794978494851, '[{"kind":"task_claimed","task":"t_1m7pgwebx1namtre","agent":"ada","token":1,"data":{"deadline":1794979394851}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (61, '878', 1794978494653, '[{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":1}},{"kind":"agent_stalled","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"action":"marked_for_restart"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (74, '912', 1794978494781, '[{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":2}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (90, '950', 1794978494853, '[{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":3}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (87, '948', 1794978494857, '[{"kind":"task_returned","task":"t_1m7pgwebx1namtre","agent":"ada","token":1,"data":{"reason":"not now"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (88, '950', 1794978494862, '[{"kind":"task_claimed","task":"t_1m7pgwebx1namtre","agent":"ada","token":2,"data":{"deadline":1794979394862}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (89, '951', 1794978494865, '[{"kind":"task_failed","task":"t_1m7pgwebx1namtre","agent":"ada","token":2,"data":{"reason":"no such file; a bad request is not retried","message":"no such file"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (91, '952', 1794978494871, '[{"kind":"task_dismissed","task":"t_1m7pgwebx1namtre","data":{"by":"cleo"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (92, '958', 1794978496071, '[{"kind":"run_opened","run":"r_kept","data":{"name":"digest","deadline":null}},{"kind":"task_submitted","task":"t_am44btt1wzcjqax7","run":"r_kept","data":{"name":"digest"}},{"kind":"task_claimed","task":"t_am44btt1wzcjqax7","run":"r_kept","agent":"elsewhere:3836.146598.0a0b0c0d","token":1,"data":{"deadline":1794980301071}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (93, '961', 1794978496094, '[{"kind":"step_recorded","task":"t_njnrreknqkwn38rt","run":"r_kept","agent":"elsewhere:3836.146598.0a0b0c0d","token":1,"data":{"name":"fetch","elapsed_ms":0}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (94, '962', 1794978496103, '[{"kind":"step_recorded","task":"t_4rvx0q337d25wfxg","run":"r_kept","agent":"elsewhere:3836.146598.0a0b0c0d","token":1,"data":{"name":"fetch","elapsed_ms":4}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (95, '963', 1794978496095, '[{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":4}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":5}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":6}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":7}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":8}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":9}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":10}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":11}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":12}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":13}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":14}},{"kind":"checkpoint_timeout","task":"t_1m7pgwe1v32erkrg","agent":"eve","token":1,"data":{"checkpoint_count":15}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (96, '964', 1794978496194, '[{"kind":"run_ended","run":"r_1m7pgwe590t9m06r","data":{"reason":"called off"}}]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (1, '', '["printer"]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (2, '', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (3, '', '["parked"]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (4, 'writer', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (5, 'expert', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (6, '@ada', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (7, '@bob', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (8, 'flow', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (9, 'step', '[]');
INSERT INTO allswell.lease VALUES ('t_1m7pgwdybag0chqq', 1, 'ben', 1794978494422, 1795007294422, NULL, NULL, 300000, 30000, 10000, '', 0, NULL, 1794978494422, NULL, '', 1794978824422, NULL, NULL);
INSERT INTO allswell.lease VALUES ('t_1m7pgwdzq0waadyf', 1, 'ada', 1794978494477, 1795007294477, NULL, 25200000, 300000, 30000, 10000, '', 0, NULL, 1794978494483, 0.5, 'half of it', 1794978824477, 0, NULL);
INSERT INTO allswell.lease VALUES ('t_1m7pgwe10fapek22', 1, 'bob', 1794978494511, 1795007294511, 60000, NULL, 300000, 30000, 10000, '', 0, NULL, 1794978494511, NULL, '', 1794978554511, NULL, NULL);
INSERT INTO allswell.lease VALUES ('t_1m7pgwe1v32erkrg', 1, 'eve', 1794978494530, 1795007294530, NULL, NULL, 100, 20, 25200000, '', 15, 1794978494653, 1794978494530, NULL, '', NULL, NULL, NULL);
INSERT INTO allswell.lease VALUES ('t_1m7pgwe8b26a03nx', 1, 'ada', 1794978494739, 1795007294739, NULL, NULL, 300000, 30000, 10000, '', 0, NULL, 1794978494739, NULL, '', 1794978824739, NULL, NULL);
INSERT INTO allswell.lease VALUES ('t_am44btt1wzcjqax7', 1, 'elsewhere:3836.146598.0a0b0c0d', 1794978496071, 1794980301071, 60000, NULL, 1805000, 30000, 10000, '5a5kr1v236p365kr.1', 0, NULL, 1794978496071, NULL, '', 1794978556071, NULL, NULL);
INSERT INTO allswell.mark VALUES ('3a9d1392bc8f9ca7', 105, 1794978494866);
INSERT INTO allswell.mark VALUES ('0a418e864e02d20c', 109, 1794978494872);
INSERT INTO allswell.mark VALUES ('7bc4cddc02914406', 4, 1794978496095);
INSERT INTO allswell.mark VALUES ('0f86126f04b153e3', 3, 1794978496111);
INSERT INTO allswell.mark VALUES ('eb366190290fe6ea', 1, 1794978496200);
INSERT INTO allswell.meta VALUES ('schema', '10');
INSERT INTO allswell.meta VALUES ('kept.mesh.agent.ben', '1');
INSERT INTO allswell.meta VALUES ('kept.max_cost.r_1m7pgwe7z9drs970', '40000000');
INSERT INTO allswell.meta VALUES ('kept.key.ada', '{"name":"ada","hash":"a22476d38193dd679eb03f1242a85052478944cc8f41ba83981c8250ffa31d0f","rights":["agent"],"created_at":1794978494819,"by":"cleo","roles":["writer"],"agents":["ada"]}');
INSERT INTO allswell.meta VALUES ('kept.key.op', '{"name":"op","hash":"9f5ac84882de9178b36c41844707aabe90b59f9ede73b4a381303d0af9958bc3","rights":["operator"],"created_at":1794978494823,"expires_at":1796058494823}');
INSERT INTO allswell.meta VALUES ('kept.key.gone', '{"name":"gone","hash":"1b2d3aa29ede89ab2b6931a7479ec0328c540671c39f4de998ef5104cdfe1cb8","rights":["viewer"],"created_at":1794978494829,"revoked_at":1794978494836,"revoked_by":"cleo"}');
INSERT INTO allswell.meta VALUES ('kept.session.op', '{"link":{"hash":"abc381f0c404f6ca3187fbb1a75e3c31d945b29719b6b206ed4838bbd5d197e8","expires_at":1794979094840,"used":true},"open":[{"hash":"cf55a974f501a256586202fb76f8cca07d5ce9e0695bfe546dfb447f83f407ce","key":"9f5ac84882de9178b36c41844707aabe90b59f9ede73b4a381303d0af9958bc3","opened_at":1794978494843,"expires_at":1795583294843}]}');
INSERT INTO allswell.meta VALUES ('kept.supervisor.night', '{"name":"night","marker":"m","host":"elsewhere","pid":1,"boot_id":"b","pid_namespace":"n","pid_start":1,"started_at":1794978494875,"beaten_at":1794978494875,"pace":3600000,"posts":[{"agent":"ada","holder":"ada","kind":"claude","role":"writer","name":"costs","token":1,"condition":"working","proof_at":1794978494875}],"stopping":true}');
INSERT INTO allswell.meta VALUES ('kept.survivors.ada', '{"holder":"ada","task":"t_1m7pgwebx1namtre","name":"dismissed","attempt":1,"host":"elsewhere","boot_id":"b","pid_namespace":"n","processes":[{"pid":7,"start":1,"command":"sleep 9"}],"folder":"x"}');
INSERT INTO allswell.meta VALUES ('kept.sink.ops.memory', 'remembered');
INSERT INTO allswell.question VALUES ('q_1m7pgwdpz9tpjx5b.1', 't_1m7pgwdpz9tpjx5b', NULL, 'agent', 'This is too much for one.', '[{"key":"split","label":"Split task into smaller subtasks","act":"split"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794978494196, 'ada', 1794978494207, 'split', '', 'cleo', 'djvrn2633gbsffsg.a', true, NULL, '');
INSERT INTO allswell.question VALUES ('q_@locked.1', '', NULL, 'service_needs_help', 'Service locked refuses who we say we are (PermissionError: 401). Calls that meet this are given up. How should we proceed?', '[{"key":"mended","label":"It is mended: go on, and ask again if it happens again","act":"probe"},{"key":"later","label":"Ask again in an hour, if it still happens","act":"quiet"}]', 1794978494308, 'allswell', NULL, NULL, '', '', '', false, NULL, '');
INSERT INTO allswell.question VALUES ('q_1m7pgwdvmbg11ajx.1', 't_1m7pgwdvmbg11ajx', 'r_1m7pgwdvb4r4k3m2', 'agent', 'Which table?', '[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794978494351, 'ben', NULL, NULL, '', '', '', true, NULL, '');
INSERT INTO allswell.question VALUES ('q_1m7pgwdwx3145p9a.1', 't_1m7pgwdwx3145p9a', NULL, 'agent', 'And this one?', '[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794978494385, 'ben', 1794978494395, 'retry', 'the second', 'cleo', 'djvrn2633gbsffsg.1b', true, NULL, '');
INSERT INTO allswell.question VALUES ('q_1m7pgwdybag0chqq.1', 't_1m7pgwdybag0chqq', NULL, 'agent', 'By the way?', '[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794978494430, 'ben', NULL, NULL, '', '', '', false, NULL, '');
INSERT INTO allswell.question VALUES ('q_1m7pgwe934k3b0yy.1', 't_1m7pgwe934k3b0yy', NULL, 'cost_limit', 'Task costs too much has cost $1.20 in its attempt, and may cost $1.00. Its work is kept. How should we proceed?', '[{"key":"increase_cost","label":"Go on with more money for this task","act":"increase_cost"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794978494782, 'allswell', 1794978494796, 'increase_cost', '', 'cleo', 'djvrn2633gbsffsg.3c', true, NULL, '');
INSERT INTO allswell.ready VALUES ('t_1m7pgwdqs04vpzx6', 2, 4398048306082494207);
INSERT INTO allswell.ready VALUES ('t_1m7pgwdrb4hd2fkr', 3, 4398048306082494219);
INSERT INTO allswell.ready VALUES ('t_1m7pgwdrkftvfzwc', 3, 4398048306082494227);
INSERT INTO allswell.ready VALUES ('t_1m7pgwdwx3145p9a', 2, 4398048306082494365);
INSERT INTO allswell.ready VALUES ('t_tk3rhn9rby1h9em9', 4, 4398035111942961128);
INSERT INTO allswell.ready VALUES ('t_1m7pgwe0p1sx0tjd', 5, 4398048306082494490);
INSERT INTO allswell.ready VALUES ('t_1m7pgwe327epnt8m', 2, 4398048306082494562);
INSERT INTO allswell.ready VALUES ('t_1m7pgwe3h7m3fvcz', 2, 4398048306082494578);
INSERT INTO allswell.ready VALUES ('t_1m7pgwe5aasz8nms', 2, 4398048306082494636);
INSERT INTO allswell.ready VALUES ('m_1m7pgwe5ffwmt6p0.sekds7q0', 7, 4398048306082494695);
INSERT INTO allswell.ready VALUES ('t_1m7pgwe934k3b0yy', 2, 4398048306082494755);
INSERT INTO allswell.ready VALUES ('t_1m7pgweadeythnwx', 2, 4398048306082494797);
INSERT INTO allswell.run VALUES ('r_1m7pgwdvb4r4k3m2', 'stands', 1794978494317, 1794989294317, NULL, '', 'djvrn2633gbsffsg.16', 1, 1794978494351, 0, 1);
INSERT INTO allswell.run VALUES ('r_1m7pgwe3e118a4ts', 'night', 1794978494576, 1795000094576, NULL, '', 'djvrn2633gbsffsg.2a', 0, NULL, 0, 0);
INSERT INTO allswell.run VALUES ('r_1m7pgwe3q7smbecn', 'over', 1794978494585, NULL, 1794978494596, 'enough', 'djvrn2633gbsffsg.2e', 0, NULL, 0, 0);
INSERT INTO allswell.run VALUES ('r_1m7pgwe7z9drs970', 'budget', 1794978494729, NULL, NULL, '', 'djvrn2633gbsffsg.36', 0, NULL, 0, 0);
INSERT INTO allswell.run VALUES ('r_kept', 'digest', 1794978496071, NULL, NULL, '', '5a5kr1v236p365kr.1', 0, NULL, 0, 0);
INSERT INTO allswell.run VALUES ('r_1m7pgwe590t9m06r', 'ends', 1794978494634, NULL, 1794978496194, 'called off', '747bkbv0wkyrq98z.1', 0, NULL, 0, 0);
INSERT INTO allswell.service VALUES ('parked', '{"id":"parked","state":{"parked_until":1794985694253}}');
INSERT INTO allswell.service VALUES ('broken', '{"id":"broken","state":{"failures":3,"generation":1,"open_until":1794978524287},"since":1794978494287,"command":"djvrn2633gbsffsg.12"}');
INSERT INTO allswell.service VALUES ('locked', '{"id":"locked","questions":1,"command":"djvrn2633gbsffsg.15","causes":{"auth":1}}');
INSERT INTO allswell.spread OVERRIDING SYSTEM VALUE VALUES (5, 'r_1m7pgwe590t9m06r', 'cancelled', 'called off', '[]');
INSERT INTO allswell.task VALUES ('t_1m7pgwdhm3w08ygj', 'done', NULL, '', 1, 0, 'done', 1794978494047, 1794978494078, '{"services":["printer"],"policy":{"retry":{}}}', '{"token":1,"reason":"completed","ended_by":"djvrn2633gbsffsg.2"}', '{"pages":3}', '{"pages":[1,2,3]}', 4398048306082494047, '["ada",1794978494068,1794978494078,"done","djvrn2633gbsffsg.2","completed"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwdm72387yk0', 'failed', NULL, '', 2, 0, 'failed', 1794978494100, 1794978494136, '{"policy":{"retry":{}}}', '{"token":1,"failures":{"validation":1},"handover":{"reason":"failed:validation","agent":"ada","message":"no such table"},"reason":"no such table; a bad request is not retried","ended_by":"djvrn2633gbsffsg.5"}', 'null', NULL, 4398048306082494100, '["ada",1794978494129,1794978494136,"failed:validation","djvrn2633gbsffsg.5","no such table"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwdpn3qf7tqx', 'cancelled', NULL, '', 2, 0, 'cancelled', 1794978494165, 1794978494171, '{"policy":{"retry":{}}}', '{"reason":"not wanted any more","ended_by":"djvrn2633gbsffsg.7"}', 'null', NULL, 4398048306082494165, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwdpz9tpjx5b', 'too big', NULL, '', 2, 0, 'split', 1794978494174, 1794978494207, '{"policy":{"retry":{}}}', '{"token":1,"questions":1,"asked_by":"djvrn2633gbsffsg.9","notes":["To “This is too much for one.”, a human chose split (Split task into smaller subtasks)"],"handover":{"reason":"asked","agent":"ada","message":"This is too much for one."},"reason":"split into 1","replaced_by":["t_1m7pgwdqs04vpzx6"],"ended_by":"djvrn2633gbsffsg.a"}', 'null', NULL, 4398048306082494174, '["ada",1794978494182,1794978494196,"asked","djvrn2633gbsffsg.9","This is too much for one."]');
INSERT INTO allswell.task VALUES ('t_1m7pgwdqs04vpzx6', 'part', NULL, '', 2, 0, 'open', 1794978494207, NULL, '{"policy":{"retry":{}}}', '{}', '1', NULL, 4398048306082494207, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwdnbcgd4a9e', 'skipped', NULL, '', 2, 0, 'skipped', 1794978494124, 1794978494209, '{"needs":["t_1m7pgwdm72387yk0"],"policy":{"retry":{}}}', '{"reason":"t_1m7pgwdm72387yk0 was failed: no such table; a bad request is not retried"}', 'null', NULL, 4398048306082494124, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwdrb4hd2fkr', 'needs the parked', NULL, '', 3, 0, 'open', 1794978494219, NULL, '{"services":["parked"],"policy":{"retry":{}}}', '{}', 'null', NULL, 4398048306082494219, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwdrkftvfzwc', 'parked by', NULL, '', 3, 0, 'open', 1794978494227, NULL, '{"services":["parked"],"policy":{"retry":{}}}', '{"token":1,"handover":{"reason":"parked","agent":"ada","message":"429"}}', 'null', NULL, 4398048306082494227, '["ada",1794978494239,1794978494253,"parked","djvrn2633gbsffsg.d","429"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwdvmbg11ajx', 'asks', 'r_1m7pgwdvb4r4k3m2', '', 2, 0, 'open', 1794978494326, NULL, '{"policy":{"retry":{}}}', '{"token":1,"questions":1,"asked_by":"djvrn2633gbsffsg.18","handover":{"reason":"asked","agent":"ben","message":"Which table?"}}', 'null', NULL, 4398048306082494326, '["ben",1794978494335,1794978494351,"asked","djvrn2633gbsffsg.18","Which table?"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwdwx3145p9a', 'answered', NULL, '', 2, 0, 'open', 1794978494365, NULL, '{"policy":{"retry":{}}}', '{"token":1,"questions":1,"asked_by":"djvrn2633gbsffsg.1a","notes":["To “And this one?”, a human chose retry (Try again as it is): the second"],"handover":{"reason":"asked","agent":"ben","message":"And this one?","answer":"retry"}}', 'null', NULL, 4398048306082494365, '["ben",1794978494376,1794978494385,"asked","djvrn2633gbsffsg.1a","And this one?"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwdybag0chqq', 'asks in passing', NULL, '', 2, 0, 'open', 1794978494411, NULL, '{"policy":{"timeout":28800000,"retry":{}}}', '{"questions":1,"asked_by":"djvrn2633gbsffsg.1d"}', 'null', NULL, 4398048306082494411, NULL);
INSERT INTO allswell.task VALUES ('t_tk3rhn9rby1h9em9', 'ready', NULL, 'writer', 4, 3, 'open', 1794978494440, NULL, '{"policy":{"retry":{}},"digest":"0f8ead3bd200f1c1"}', '{}', '{"file":"notes.md"}', NULL, 4398035111942961128, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwdzq0waadyf', 'held', NULL, '', 2, 0, 'open', 1794978494455, NULL, '{"policy":{"timeout":28800000,"idle":25200000,"retry":{}}}', '{}', 'null', NULL, 4398048306082494455, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwdzza1q350z', 'waiting', NULL, '', 2, 0, 'open', 1794978494465, NULL, '{"needs":["t_1m7pgwdzq0waadyf"],"critical":true,"policy":{"retry":{}}}', '{}', 'null', NULL, 4398048306082494465, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe0p1sx0tjd', 'request', NULL, 'expert', 5, 0, 'open', 1794978494490, NULL, '{"policy":{"timeout":18000000,"retry":{"max_attempts":1,"retries":0}},"limit_at":1794996494490,"origin":{"task":"t_1m7pgwdzq0waadyf","token":1,"agent":"ada","command":"djvrn2633gbsffsg.22"}}', '{}', '"look at this"', NULL, 4398048306082494490, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe10fapek22', 'leased', NULL, '', 2, 0, 'open', 1794978494495, NULL, '{"policy":{"timeout":28800000,"retry":{}}}', '{}', 'null', NULL, 4398048306082494495, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe1v32erkrg', 'watched', NULL, '', 2, 0, 'open', 1794978494523, NULL, '{"policy":{"timeout":28800000,"checkpoint_interval":100,"checkpoint_timeout":20,"stall_threshold":1,"recovery_grace":25200000}}', '{}', 'null', NULL, 4398048306082494523, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe2f46xtw14', 'delayed', NULL, '', 2, 0, 'open', 1794978494543, NULL, '{"policy":{"retry":{}},"not_before":1794992894543}', '{}', 'null', NULL, 4398048306082494543, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe2j8r3wr9q', 'tried again', NULL, '', 2, 0, 'open', 1794978494546, NULL, '{"policy":{"retry":{"retries":3}}}', '{"token":1,"handover":{"reason":"parked","agent":"ada","message":"503"}}', 'null', NULL, 4398048306082494546, '["ada",1794978494553,1794978494560,"parked","djvrn2633gbsffsg.27","503"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwe327epnt8m', 'late', NULL, '', 2, 0, 'open', 1794978494562, NULL, '{"policy":{"retry":{}}}', '{"token":1,"handover":{"reason":"released","agent":"ada","message":"not now"}}', 'null', NULL, 4398048306082494562, '["ada",1794978494568,1794978494571,"released","djvrn2633gbsffsg.29","not now"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwe3h7m3fvcz', 'of a run', 'r_1m7pgwe3e118a4ts', '', 2, 0, 'open', 1794978494578, NULL, '{"policy":{"retry":{}}}', '{}', 'null', NULL, 4398048306082494578, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe3zb25m35r', 'of a run that ended', 'r_1m7pgwe3q7smbecn', '', 2, 0, 'cancelled', 1794978494592, 1794978494624, '{"policy":{"retry":{}}}', '{"reason":"enough"}', 'null', NULL, 4398048306082494592, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe5aasz8nms', 'of a run that ends', 'r_1m7pgwe590t9m06r', '', 2, 0, 'open', 1794978494636, NULL, '{"policy":{"retry":{}}}', '{}', 'null', NULL, 4398048306082494636, NULL);
INSERT INTO allswell.task VALUES ('m_1m7pgwe5ffwmt6p0.ze0njywa', 'write me a haiku', NULL, '@ada', 6, 0, 'done', 1794978494675, 1794978494679, '{"policy":{"retry":{}},"origin":{"task":"t_1m7pgwe5ffwmt6p0","token":1,"agent":"ben","command":"djvrn2633gbsffsg.32"},"request":{"kind":"status_check","to":"ada","timeout":3600000,"retries":1,"default":120000,"escalate":3600000,"remind":86400000,"asked":["ada"]}}', '{"token":1,"reason":"answered","ended_by":"djvrn2633gbsffsg.33","request":{"since":1794978494675,"due":1794982094675,"last":2,"by":"ada"}}', 'null', '{"lines":3}', 4398048306082494675, '["ada",1794978494679,1794978494679,"done","djvrn2633gbsffsg.33","answered"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwe5ffwmt6p0', 'asks others', NULL, '', 2, 0, 'open', 1794978494638, NULL, '{"policy":{"timeout":28800000,"retry":{}}}', '{"token":1,"handover":{"reason":"blocked","agent":"ben","message":"bob has not answered m_1m7pgwe5ffwmt6p0.sekds7q0: is it up?"},"answers":[{"request":"m_1m7pgwe5ffwmt6p0.ze0njywa","summary":"write me a haiku","to":"ada","by":"ada","asked_at":1794978494675,"at":1794978494679,"text":"{\"lines\":3}","token":1}]}', 'null', NULL, 4398048306082494638, '["ben",1794978494651,1794978494700,"blocked","","bob has not answered m_1m7pgwe5ffwmt6p0.sekds7q0: is it up?"]');
INSERT INTO allswell.task VALUES ('m_1m7pgwe5ffwmt6p0.sekds7q0', 'is it up?', NULL, '@bob', 7, 0, 'open', 1794978494695, NULL, '{"policy":{"retry":{}},"origin":{"task":"t_1m7pgwe5ffwmt6p0","token":1,"agent":"ben","command":"djvrn2633gbsffsg.34"},"request":{"kind":"status_check","to":"bob","timeout":1,"retries":0,"default":120000,"kept":32400000,"escalate":3600000,"remind":86400000,"asked":["bob"]}}', '{"request":{"since":1794978494700,"due":1795010894700,"waiting":false,"mesh":true,"blocked_at":1794978494700,"moved_on":true,"alert_at":1794982094700}}', 'null', NULL, 4398048306082494695, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe8b26a03nx', 'costs', 'r_1m7pgwe7z9drs970', 'writer', 4, 0, 'open', 1794978494733, NULL, '{"policy":{"timeout":28800000,"retry":{},"max_cost":3000000}}', '{}', 'null', NULL, 4398048306082494733, NULL);
INSERT INTO allswell.task VALUES ('t_1m7pgwe934k3b0yy', 'costs too much', NULL, '', 2, 0, 'open', 1794978494755, NULL, '{"policy":{"retry":{},"max_cost":1000000}}', '{"token":1,"questions":1,"handover":{"reason":"cost_limit","agent":"ada","message":"it has cost $1.20"},"cost_override":9000000}', 'null', NULL, 4398048306082494755, '["ada",1794978494774,1794978494782,"cost_limit","djvrn2633gbsffsg.3b","it has cost $1.20"]');
INSERT INTO allswell.task VALUES ('t_1m7pgweadeythnwx', 'to be verified', NULL, '', 2, 0, 'open', 1794978494797, NULL, '{"policy":{"retry":{},"verify":["make","test"]}}', '{"token":1,"handover":{"reason":"not_verified","agent":"ada","message":"It said done; `make test` failed (exit code 2), sent back, 1 of 3.\nIt printed last:\n2 failed"},"said_done":{"token":1,"said_at":1794978494806},"failed_checks":[{"token":1,"failed_at":1794978494806,"why":"exit code 2","said":"2 failed","elapsed":700,"command":"djvrn2633gbsffsg.3e"}],"back_until":1794978524806}', 'null', '"all of it"', 4398048306082494797, '["ada",1794978494805,1794978494806,"not_verified","djvrn2633gbsffsg.3e","It said done; `make test` failed (exit code 2), sent back, 1 of 3.\nIt printed last:\n2 failed"]');
INSERT INTO allswell.task VALUES ('t_1m7pgwebx1namtre', 'dismissed', NULL, '', 2, 0, 'failed', 1794978494844, 1794978494865, '{"policy":{"retry":{}}}', '{"token":2,"failures":{"validation":1},"handover":{"reason":"failed:validation","agent":"ada","message":"no such file"},"reason":"no such file; a bad request is not retried","ended_by":"djvrn2633gbsffsg.47","dismissed":{"by":"cleo","dismissed_at":1794978494871,"token":2}}', 'null', NULL, 4398048306082494844, '["ada",1794978494851,1794978494857,"released","djvrn2633gbsffsg.46","not now"]');
INSERT INTO allswell.task VALUES ('t_am44btt1wzcjqax7', 'digest', 'r_kept', 'flow', 8, 0, 'open', 1794978496071, NULL, '{"policy":{"timeout":1805000,"checkpoint_interval":1805000,"stall_threshold":1073741824},"flow":true}', '{}', 'null', NULL, 4398048306082496071, NULL);
INSERT INTO allswell.task VALUES ('t_njnrreknqkwn38rt', 'fetch', 'r_kept', 'step', 9, 0, 'done', 1794978496094, 1794978496094, '{}', '{"token":1,"reason":"completed","ended_by":"njnrreknqkwn38rt.1"}', '{"args":["a"]}', '"A"', 4398048306082496094, '["elsewhere:3836.146598.0a0b0c0d",1794978496094,1794978496094,"done","njnrreknqkwn38rt.1","completed"]');
INSERT INTO allswell.task VALUES ('t_4rvx0q337d25wfxg', 'fetch', 'r_kept', 'step', 9, 0, 'done', 1794978496099, 1794978496103, '{}', '{"token":1,"reason":"completed","ended_by":"4rvx0q337d25wfxg.1"}', '{"args":["b"]}', '"B"', 4398048306082496099, '["elsewhere:3836.146598.0a0b0c0d",1794978496099,1794978496103,"done","4rvx0q337d25wfxg.1","completed"]');
INSERT INTO allswell.timer VALUES ('t_1m7pgwe0p1sx0tjd', 1794996494490);
INSERT INTO allswell.timer VALUES ('t_1m7pgwe2f46xtw14', 1794992894543);
INSERT INTO allswell.timer VALUES ('t_1m7pgwe2j8r3wr9q', 1795000094560);
INSERT INTO allswell.timer VALUES ('r_1m7pgwe3e118a4ts', 1795000094576);
INSERT INTO allswell.timer VALUES ('m_1m7pgwe5ffwmt6p0.sekds7q0', 1794982094700);
INSERT INTO allswell.timer VALUES ('t_1m7pgwe1v32erkrg', 1794978496150);
INSERT INTO allswell.waits VALUES ('t_1m7pgwdvmbg11ajx', 'question', 'q_1m7pgwdvmbg11ajx.1');
INSERT INTO allswell.waits VALUES ('t_1m7pgwdzza1q350z', 'need', 't_1m7pgwdzq0waadyf');
INSERT INTO allswell.waits VALUES ('t_1m7pgwe5ffwmt6p0', 'request', 'm_1m7pgwe5ffwmt6p0.sekds7q0');
SELECT pg_catalog.setval('allswell.journal_id_seq', 96, true);
SELECT pg_catalog.setval('allswell.lane_id_seq', 9, true);
SELECT pg_catalog.setval('allswell.spread_seq_seq', 5, true);
ALTER TABLE ONLY allswell.agent
    ADD CONSTRAINT agent_pkey PRIMARY KEY (id);
ALTER TABLE ONLY allswell.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (task, token);
ALTER TABLE ONLY allswell.bar
    ADD CONSTRAINT bar_pkey PRIMARY KEY (task, agent);
ALTER TABLE ONLY allswell.cursor
    ADD CONSTRAINT cursor_pkey PRIMARY KEY (follower);
ALTER TABLE ONLY allswell.delivery
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (sink, xid, number, part);
ALTER TABLE ONLY allswell.expense
    ADD CONSTRAINT expense_pkey PRIMARY KEY (task, token);
ALTER TABLE ONLY allswell.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (xid, id);
ALTER TABLE ONLY allswell.lane
    ADD CONSTRAINT lane_pkey PRIMARY KEY (id);
ALTER TABLE ONLY allswell.lane
    ADD CONSTRAINT lane_role_services_key UNIQUE (role, services);
ALTER TABLE ONLY allswell.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (task);
ALTER TABLE ONLY allswell.mark
    ADD CONSTRAINT mark_pkey PRIMARY KEY (line);
ALTER TABLE ONLY allswell.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY allswell.question
    ADD CONSTRAINT question_pkey PRIMARY KEY (id);
ALTER TABLE ONLY allswell.ready
    ADD CONSTRAINT ready_pkey PRIMARY KEY (lane, rank, task);
ALTER TABLE ONLY allswell.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (id);
ALTER TABLE ONLY allswell.service
    ADD CONSTRAINT service_pkey PRIMARY KEY (id);
ALTER TABLE ONLY allswell.spread
    ADD CONSTRAINT spread_id_key UNIQUE (id);
ALTER TABLE ONLY allswell.spread
    ADD CONSTRAINT spread_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY allswell.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id);
ALTER TABLE ONLY allswell.timer
    ADD CONSTRAINT timer_pkey PRIMARY KEY (owner);
ALTER TABLE ONLY allswell.waits
    ADD CONSTRAINT waits_pkey PRIMARY KEY (task, kind, target);
CREATE INDEX expense_agent ON allswell.expense USING btree (agent, told_at);
CREATE INDEX expense_role ON allswell.expense USING btree (role, told_at);
CREATE INDEX expense_run ON allswell.expense USING btree (run) WHERE (run IS NOT NULL);
CREATE INDEX expense_told ON allswell.expense USING btree (told_at);
CREATE INDEX lease_command ON allswell.lease USING btree (command) WHERE (command <> ''::text);
CREATE INDEX lease_due ON allswell.lease USING btree (due_at);
CREATE INDEX question_open ON allswell.question USING btree (task, id) WHERE (closed_at IS NULL);
CREATE INDEX task_name ON allswell.task USING btree (name);
CREATE INDEX task_open ON allswell.task USING btree (id) WHERE (ended_at IS NULL);
CREATE INDEX task_open_of_run ON allswell.task USING btree (run, id) WHERE ((ended_at IS NULL) AND (run IS NOT NULL));
CREATE INDEX timer_due ON allswell.timer USING btree (due_at);
CREATE INDEX waits_target ON allswell.waits USING btree (target, task);

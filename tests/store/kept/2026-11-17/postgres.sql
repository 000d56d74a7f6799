-- left at 1794892968983
CREATE SCHEMA allswell;
CREATE TABLE allswell.agent (
    id text NOT NULL COLLATE pg_catalog."C",
    misses bigint NOT NULL,
    missed_at bigint NOT NULL,
    stalled boolean NOT NULL
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
    waited boolean DEFAULT false NOT NULL
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
INSERT INTO allswell.agent VALUES ('eve', 5, 1794892968902, true);
INSERT INTO allswell.bar VALUES ('t_tk3rhn9rby1h9em9', 'cato');
INSERT INTO allswell.cursor VALUES ('kept', 874, 59001);
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (2, '730', 1794892968159, '[{"kind":"task_submitted","task":"t_1m7kzac685bs2m4q","data":{"name":"done"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (3, '733', 1794892968174, '[{"kind":"task_claimed","task":"t_1m7kzac685bs2m4q","agent":"ada","token":1,"data":{"deadline":1794893868174}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (4, '735', 1794892968185, '[{"kind":"task_completed","task":"t_1m7kzac685bs2m4q","agent":"ada","token":1,"data":{"elapsed_ms":11}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (5, '738', 1794892968189, '[{"kind":"task_submitted","task":"t_1m7kzac7w9yeagsh","data":{"name":"failed"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (6, '741', 1794892968193, '[{"kind":"task_submitted","task":"t_1m7kzac802x66k0b","data":{"name":"skipped"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (7, '743', 1794892968198, '[{"kind":"task_claimed","task":"t_1m7kzac7w9yeagsh","agent":"ada","token":1,"data":{"deadline":1794893868198}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (8, '745', 1794892968205, '[{"kind":"task_failed","task":"t_1m7kzac7w9yeagsh","agent":"ada","token":1,"data":{"reason":"validation is not retried","message":"no such table"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (9, '746', 1794892968206, '[{"kind":"task_submitted","task":"t_1m7kzac8e22ppbj9","data":{"name":"cancelled"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (10, '749', 1794892968214, '[{"kind":"task_cancelled","task":"t_1m7kzac8e22ppbj9","data":{"reason":"not wanted any more"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (11, '750', 1794892968216, '[{"kind":"task_submitted","task":"t_1m7kzac8r0bb3pa1","data":{"name":"too big"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (12, '753', 1794892968221, '[{"kind":"task_claimed","task":"t_1m7kzac8r0bb3pa1","agent":"ada","token":1,"data":{"deadline":1794893868221}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (13, '754', 1794892968223, '[{"kind":"question_asked","task":"t_1m7kzac8r0bb3pa1","data":{"question":"q_1m7kzac8r0bb3pa1.1","kind":"agent","text":"This is too much for one.","options":["Split task into smaller subtasks","Skip task and continue"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (14, '756', 1794892968226, '[{"kind":"question_answered","task":"t_1m7kzac8r0bb3pa1","data":{"question":"q_1m7kzac8r0bb3pa1.1","choice":"split","by":"cleo"}},{"kind":"task_split","task":"t_1m7kzac8r0bb3pa1","data":{"subtasks":["t_1m7kzac912tbt8yj"]}},{"kind":"task_submitted","task":"t_1m7kzac912tbt8yj","data":{"name":"part"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (15, '761', 1794892968230, '[{"kind":"task_submitted","task":"t_1m7kzac95a73maf3","data":{"name":"needs the parked"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (16, '762', 1794892968231, '[{"kind":"task_submitted","task":"t_1m7kzac978ff7w4m","data":{"name":"parked by"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (17, '765', 1794892968235, '[{"kind":"task_claimed","task":"t_1m7kzac978ff7w4m","agent":"ada","token":1,"data":{"deadline":1794893868235}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (18, '769', 1794892968243, '[{"kind":"service_parked","task":"t_1m7kzac978ff7w4m","data":{"service":"parked","until":1794900168243}},{"kind":"task_returned","task":"t_1m7kzac978ff7w4m","agent":"ada","token":1,"data":{"reason":"service_parked"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (19, '770', 1794892968243, '[{"kind":"task_skipped","task":"t_1m7kzac802x66k0b","data":{"reason":"t_1m7kzac7w9yeagsh was failed"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (20, '777', 1794892968257, '[{"kind":"breaker_opened","data":{"service":"broken","failures":3,"pause_ms":30000}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (21, '781', 1794892968269, '[{"kind":"service_escalated","data":{"service":"locked","cause":"auth","reason":"auth is not retried","question":"q_@locked.1"}},{"kind":"question_asked","data":{"question":"q_@locked.1","kind":"service_needs_help","text":"Service locked refuses who we say we are (PermissionError: 401). Calls that meet this are given up. How should we proceed?","options":["It is mended: go on, and ask again if it happens again","Ask again in an hour, if it still happens"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (22, '783', 1794892968271, '[{"kind":"run_opened","run":"r_1m7kzacaeaear9tr","data":{"name":"stands","deadline":1794903768271}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (23, '785', 1794892968277, '[{"kind":"task_submitted","task":"t_1m7kzacan3v02fax","run":"r_1m7kzacaeaear9tr","data":{"name":"asks"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (24, '788', 1794892968284, '[{"kind":"task_claimed","task":"t_1m7kzacan3v02fax","run":"r_1m7kzacaeaear9tr","agent":"ben","token":1,"data":{"deadline":1794893868284}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (25, '789', 1794892968288, '[{"kind":"question_asked","task":"t_1m7kzacan3v02fax","run":"r_1m7kzacaeaear9tr","data":{"question":"q_1m7kzacan3v02fax.1","kind":"agent","text":"Which table?","options":["Try again as it is","Skip task and continue"]}},{"kind":"run_stands","run":"r_1m7kzacaeaear9tr","data":{"question":"q_1m7kzacan3v02fax.1"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (26, '792', 1794892968296, '[{"kind":"task_submitted","task":"t_1m7kzacb877771gc","data":{"name":"answered"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (27, '795', 1794892968300, '[{"kind":"task_claimed","task":"t_1m7kzacb877771gc","agent":"ben","token":1,"data":{"deadline":1794893868300}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (28, '798', 1794892968304, '[{"kind":"question_asked","task":"t_1m7kzacb877771gc","data":{"question":"q_1m7kzacb877771gc.1","kind":"agent","text":"And this one?","options":["Try again as it is","Skip task and continue"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (29, '800', 1794892968309, '[{"kind":"question_answered","task":"t_1m7kzacb877771gc","data":{"question":"q_1m7kzacb877771gc.1","choice":"retry","by":"cleo"}},{"kind":"task_ready","task":"t_1m7kzacb877771gc","data":{"reason":"answered"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (30, '802', 1794892968312, '[{"kind":"task_submitted","task":"t_1m7kzacbrd4tdtpr","data":{"name":"asks in passing"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (31, '806', 1794892968318, '[{"kind":"task_claimed","task":"t_1m7kzacbrd4tdtpr","agent":"ben","token":1,"data":{"deadline":1794921768318}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (32, '807', 1794892968320, '[{"kind":"question_asked","task":"t_1m7kzacbrd4tdtpr","data":{"question":"q_1m7kzacbrd4tdtpr.1","kind":"agent","text":"By the way?","options":["Try again as it is","Skip task and continue"]}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (33, '811', 1794892968324, '[{"kind":"task_submitted","task":"t_tk3rhn9rby1h9em9","data":{"name":"ready"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (34, '814', 1794892968331, '[{"kind":"task_submitted","task":"t_1m7kzaccb4r9cxcg","data":{"name":"held"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (35, '817', 1794892968344, '[{"kind":"task_submitted","task":"t_1m7kzaccm3fswr32","data":{"name":"waiting"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (36, '819', 1794892968354, '[{"kind":"task_claimed","task":"t_1m7kzaccb4r9cxcg","agent":"ada","token":1,"data":{"deadline":1794921768354}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (37, '821', 1794892968356, '[{"kind":"task_checked_in","task":"t_1m7kzaccb4r9cxcg","agent":"ada","token":1,"data":{"note":"half of it","progress":0.5}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (38, '822', 1794892968358, '[{"kind":"receipt_written","task":"t_1m7kzaccb4r9cxcg","agent":"ada","token":1,"data":{"receipt":"rc_kept.1","status":"partial","path":"receipts/kept.json"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (39, '826', 1794892968362, '[{"kind":"request_sent","task":"t_1m7kzaccb4r9cxcg","agent":"ada","token":1,"data":{"request":"t_1m7kzacd8042qhd2","kind":"delegation","to":"expert","timeout_ms":18000000}},{"kind":"task_submitted","task":"t_1m7kzacd8042qhd2","data":{"name":"request"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (40, '828', 1794892968368, '[{"kind":"task_submitted","task":"t_1m7kzacdgffw45aq","data":{"name":"leased"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (41, '832', 1794892968373, '[{"kind":"task_claimed","task":"t_1m7kzacdgffw45aq","agent":"bob","token":1,"data":{"deadline":1794921768373}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (42, '833', 1794892968376, '[{"kind":"task_submitted","task":"t_1m7kzacdr1wnhy16","data":{"name":"watched"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (43, '836', 1794892968382, '[{"kind":"task_claimed","task":"t_1m7kzacdr1wnhy16","agent":"eve","token":1,"data":{"deadline":1794921768382}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (44, '838', 1794892968384, '[{"kind":"task_submitted","task":"t_1m7kzace0f3e7w3a","data":{"name":"delayed"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (45, '840', 1794892968387, '[{"kind":"task_submitted","task":"t_1m7kzace4cy5x3br","data":{"name":"tried again"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (46, '843', 1794892968398, '[{"kind":"task_claimed","task":"t_1m7kzace4cy5x3br","agent":"ada","token":1,"data":{"deadline":1794893868398}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (47, '844', 1794892968401, '[{"kind":"task_returned","task":"t_1m7kzace4cy5x3br","agent":"ada","token":1,"data":{"reason":"service_parked"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (48, '846', 1794892968404, '[{"kind":"task_submitted","task":"t_1m7kzacem3kvq7ty","data":{"name":"late"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (49, '850', 1794892968410, '[{"kind":"task_claimed","task":"t_1m7kzacem3kvq7ty","agent":"ada","token":1,"data":{"deadline":1794893868410}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (50, '851', 1794892968417, '[{"kind":"task_returned","task":"t_1m7kzacem3kvq7ty","agent":"ada","token":1,"data":{"reason":"not now"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (51, '854', 1794892968421, '[{"kind":"run_opened","run":"r_1m7kzacf4fk7ghy4","data":{"name":"night","deadline":1794914568421}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (52, '855', 1794892968422, '[{"kind":"task_submitted","task":"t_1m7kzacf6axjtwh5","run":"r_1m7kzacf4fk7ghy4","data":{"name":"of a run"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (53, '858', 1794892968424, '[{"kind":"run_opened","run":"r_1m7kzacf71bex9jk","data":{"name":"over","deadline":null}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (54, '860', 1794892968425, '[{"kind":"task_submitted","task":"t_1m7kzacf9164gpas","run":"r_1m7kzacf71bex9jk","data":{"name":"of a run that ended"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (55, '862', 1794892968427, '[{"kind":"run_ended","run":"r_1m7kzacf71bex9jk","data":{"reason":"enough"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (56, '866', 1794892968438, '[{"kind":"task_cancelled","task":"t_1m7kzacf9164gpas","run":"r_1m7kzacf71bex9jk","data":{"reason":"enough"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (57, '869', 1794892968454, '[{"kind":"run_opened","run":"r_1m7kzacg52st2wyg","data":{"name":"ends","deadline":null}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (58, '871', 1794892968456, '[{"kind":"task_submitted","task":"t_1m7kzacg63z52bd2","run":"r_1m7kzacg52st2wyg","data":{"name":"of a run that ends"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (59, '874', 1794892968506, '[{"kind":"checkpoint_timeout","task":"t_1m7kzacdr1wnhy16","agent":"eve","token":1,"data":{"checkpoint_count":1}},{"kind":"agent_stalled","task":"t_1m7kzacdr1wnhy16","agent":"eve","token":1,"data":{"action":"marked_for_restart"}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (60, '879', 1794892968916, '[{"kind":"run_opened","run":"r_kept","data":{"name":"digest","deadline":null}},{"kind":"task_submitted","task":"t_am44btt1wzcjqax7","run":"r_kept","data":{"name":"digest"}},{"kind":"task_claimed","task":"t_am44btt1wzcjqax7","run":"r_kept","agent":"elsewhere:8167.1218312.0a0b0c0d","token":1,"data":{"deadline":1794894773916}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (61, '879', 1794892968911, '[{"kind":"checkpoint_timeout","task":"t_1m7kzacdr1wnhy16","agent":"eve","token":1,"data":{"checkpoint_count":2}},{"kind":"checkpoint_timeout","task":"t_1m7kzacdr1wnhy16","agent":"eve","token":1,"data":{"checkpoint_count":3}},{"kind":"checkpoint_timeout","task":"t_1m7kzacdr1wnhy16","agent":"eve","token":1,"data":{"checkpoint_count":4}},{"kind":"checkpoint_timeout","task":"t_1m7kzacdr1wnhy16","agent":"eve","token":1,"data":{"checkpoint_count":5}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (62, '881', 1794892968927, '[{"kind":"step_recorded","task":"t_njnrreknqkwn38rt","run":"r_kept","agent":"elsewhere:8167.1218312.0a0b0c0d","token":1,"data":{"name":"fetch","elapsed_ms":0}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (63, '882', 1794892968931, '[{"kind":"step_recorded","task":"t_4rvx0q337d25wfxg","run":"r_kept","agent":"elsewhere:8167.1218312.0a0b0c0d","token":1,"data":{"name":"fetch","elapsed_ms":0}}]');
INSERT INTO allswell.journal OVERRIDING SYSTEM VALUE VALUES (64, '884', 1794892968980, '[{"kind":"run_ended","run":"r_1m7kzacg52st2wyg","data":{"reason":"called off"}}]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (1, '', '["printer"]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (2, '', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (3, '', '["parked"]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (4, 'writer', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (5, 'expert', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (6, 'flow', '[]');
INSERT INTO allswell.lane OVERRIDING SYSTEM VALUE VALUES (7, 'step', '[]');
INSERT INTO allswell.lease VALUES ('t_1m7kzacbrd4tdtpr', 1, 'ben', 1794892968318, 1794921768318, NULL, NULL, 300000, 30000, 10000, '', 0, NULL, 1794892968318, NULL, '', 1794893298318, NULL, NULL);
INSERT INTO allswell.lease VALUES ('t_1m7kzaccb4r9cxcg', 1, 'ada', 1794892968354, 1794921768354, NULL, 25200000, 300000, 30000, 10000, '', 0, NULL, 1794892968356, 0.5, 'half of it', 1794893298354, 0, NULL);
INSERT INTO allswell.lease VALUES ('t_1m7kzacdgffw45aq', 1, 'bob', 1794892968373, 1794921768373, 60000, NULL, 300000, 30000, 10000, '', 0, NULL, 1794892968373, NULL, '', 1794893028373, NULL, NULL);
INSERT INTO allswell.lease VALUES ('t_am44btt1wzcjqax7', 1, 'elsewhere:8167.1218312.0a0b0c0d', 1794892968916, 1794894773916, 60000, NULL, 1805000, 30000, 10000, 'maj4z2rg0zpsczdk.1', 0, NULL, 1794892968916, NULL, '', 1794893028916, NULL, NULL);
INSERT INTO allswell.lease VALUES ('t_1m7kzacdr1wnhy16', 1, 'eve', 1794892968382, 1794921768382, NULL, NULL, 100, 20, 25200000, '', 5, 1794892968506, 1794892968382, NULL, '', NULL, NULL, NULL);
INSERT INTO allswell.mark VALUES ('98d7ea41e473e72d', 37, 1794892968306);
INSERT INTO allswell.mark VALUES ('544efcf3f46c2170', 72, 1794892968508);
INSERT INTO allswell.mark VALUES ('25e564c14b837234', 2, 1794892968920);
INSERT INTO allswell.mark VALUES ('4df40590c7f12954', 5, 1794892968931);
INSERT INTO allswell.mark VALUES ('3a66018210ad7864', 1, 1794892968981);
INSERT INTO allswell.meta VALUES ('schema', '6');
INSERT INTO allswell.question VALUES ('q_1m7kzac8r0bb3pa1.1', 't_1m7kzac8r0bb3pa1', NULL, 'agent', 'This is too much for one.', '[{"key":"split","label":"Split task into smaller subtasks","act":"split"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794892968223, 'ada', 1794892968226, 'split', '', 'cleo', 'e0wr7m259qvkdx76.a', true);
INSERT INTO allswell.question VALUES ('q_@locked.1', '', NULL, 'service_needs_help', 'Service locked refuses who we say we are (PermissionError: 401). Calls that meet this are given up. How should we proceed?', '[{"key":"mended","label":"It is mended: go on, and ask again if it happens again","act":"probe"},{"key":"later","label":"Ask again in an hour, if it still happens","act":"quiet"}]', 1794892968269, 'allswell', NULL, NULL, '', '', '', false);
INSERT INTO allswell.question VALUES ('q_1m7kzacan3v02fax.1', 't_1m7kzacan3v02fax', 'r_1m7kzacaeaear9tr', 'agent', 'Which table?', '[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794892968288, 'ben', NULL, NULL, '', '', '', true);
INSERT INTO allswell.question VALUES ('q_1m7kzacb877771gc.1', 't_1m7kzacb877771gc', NULL, 'agent', 'And this one?', '[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794892968304, 'ben', 1794892968309, 'retry', 'the second', 'cleo', 'e0wr7m259qvkdx76.1b', true);
INSERT INTO allswell.question VALUES ('q_1m7kzacbrd4tdtpr.1', 't_1m7kzacbrd4tdtpr', NULL, 'agent', 'By the way?', '[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]', 1794892968320, 'ben', NULL, NULL, '', '', '', false);
INSERT INTO allswell.ready VALUES ('t_1m7kzac912tbt8yj', 2, 4398048305996968226);
INSERT INTO allswell.ready VALUES ('t_1m7kzac95a73maf3', 3, 4398048305996968230);
INSERT INTO allswell.ready VALUES ('t_1m7kzac978ff7w4m', 3, 4398048305996968231);
INSERT INTO allswell.ready VALUES ('t_1m7kzacb877771gc', 2, 4398048305996968296);
INSERT INTO allswell.ready VALUES ('t_tk3rhn9rby1h9em9', 4, 4398035111857435012);
INSERT INTO allswell.ready VALUES ('t_1m7kzacd8042qhd2', 5, 4398048305996968362);
INSERT INTO allswell.ready VALUES ('t_1m7kzacem3kvq7ty', 2, 4398048305996968404);
INSERT INTO allswell.ready VALUES ('t_1m7kzacf6axjtwh5', 2, 4398048305996968422);
INSERT INTO allswell.ready VALUES ('t_1m7kzacg63z52bd2', 2, 4398048305996968456);
INSERT INTO allswell.run VALUES ('r_1m7kzacaeaear9tr', 'stands', 1794892968271, 1794903768271, NULL, '', 'e0wr7m259qvkdx76.16', 1, 1794892968288, 0, 1);
INSERT INTO allswell.run VALUES ('r_1m7kzacf4fk7ghy4', 'night', 1794892968421, 1794914568421, NULL, '', 'e0wr7m259qvkdx76.2a', 0, NULL, 0, 0);
INSERT INTO allswell.run VALUES ('r_1m7kzacf71bex9jk', 'over', 1794892968424, NULL, 1794892968427, 'enough', 'e0wr7m259qvkdx76.2e', 0, NULL, 0, 0);
INSERT INTO allswell.run VALUES ('r_kept', 'digest', 1794892968916, NULL, NULL, '', 'maj4z2rg0zpsczdk.1', 0, NULL, 0, 0);
INSERT INTO allswell.run VALUES ('r_1m7kzacg52st2wyg', 'ends', 1794892968454, NULL, 1794892968980, 'called off', 'embfpyt5wwf7fdpj.1', 0, NULL, 0, 0);
INSERT INTO allswell.service VALUES ('parked', '{"id":"parked","state":{"parked_until":1794900168243}}');
INSERT INTO allswell.service VALUES ('broken', '{"id":"broken","state":{"failures":3,"generation":1,"open_until":1794892998257},"since":1794892968257,"command":"e0wr7m259qvkdx76.12"}');
INSERT INTO allswell.service VALUES ('locked', '{"id":"locked","questions":1,"command":"e0wr7m259qvkdx76.15","causes":{"auth":1}}');
INSERT INTO allswell.spread OVERRIDING SYSTEM VALUE VALUES (5, 'r_1m7kzacg52st2wyg', 'cancelled', 'called off', '[]');
INSERT INTO allswell.task VALUES ('t_1m7kzac685bs2m4q', 'done', NULL, '', 1, 0, 'done', 1794892968159, 1794892968185, '{"services":["printer"],"policy":{"retry":{}}}', '{"token":1,"reason":"completed","ended_by":"e0wr7m259qvkdx76.2"}', '{"pages":3}', '{"pages":[1,2,3]}', 4398048305996968159, '["ada",1794892968174,1794892968185,"done","e0wr7m259qvkdx76.2","completed"]');
INSERT INTO allswell.task VALUES ('t_1m7kzac7w9yeagsh', 'failed', NULL, '', 2, 0, 'failed', 1794892968189, 1794892968205, '{"policy":{"retry":{}}}', '{"token":1,"failures":{"validation":1},"handover":{"reason":"failed:validation","agent":"ada","message":"no such table"},"reason":"validation is not retried","ended_by":"e0wr7m259qvkdx76.5"}', 'null', NULL, 4398048305996968189, '["ada",1794892968198,1794892968205,"failed:validation","e0wr7m259qvkdx76.5","no such table"]');
INSERT INTO allswell.task VALUES ('t_1m7kzac8e22ppbj9', 'cancelled', NULL, '', 2, 0, 'cancelled', 1794892968206, 1794892968214, '{"policy":{"retry":{}}}', '{"reason":"not wanted any more","ended_by":"e0wr7m259qvkdx76.7"}', 'null', NULL, 4398048305996968206, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzac8r0bb3pa1', 'too big', NULL, '', 2, 0, 'split', 1794892968216, 1794892968226, '{"policy":{"retry":{}}}', '{"token":1,"questions":1,"asked_by":"e0wr7m259qvkdx76.9","notes":["To “This is too much for one.”, a human chose split (Split task into smaller subtasks)"],"handover":{"reason":"asked","agent":"ada","message":"This is too much for one."},"reason":"split into 1","replaced_by":["t_1m7kzac912tbt8yj"],"ended_by":"e0wr7m259qvkdx76.a"}', 'null', NULL, 4398048305996968216, '["ada",1794892968221,1794892968223,"asked","e0wr7m259qvkdx76.9","This is too much for one."]');
INSERT INTO allswell.task VALUES ('t_1m7kzac912tbt8yj', 'part', NULL, '', 2, 0, 'open', 1794892968226, NULL, '{"policy":{"retry":{}}}', '{}', '1', NULL, 4398048305996968226, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzac95a73maf3', 'needs the parked', NULL, '', 3, 0, 'open', 1794892968230, NULL, '{"services":["parked"],"policy":{"retry":{}}}', '{}', 'null', NULL, 4398048305996968230, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzac978ff7w4m', 'parked by', NULL, '', 3, 0, 'open', 1794892968231, NULL, '{"services":["parked"],"policy":{"retry":{}}}', '{"token":1,"handover":{"reason":"parked","agent":"ada","message":"429"}}', 'null', NULL, 4398048305996968231, '["ada",1794892968235,1794892968243,"parked","e0wr7m259qvkdx76.d","429"]');
INSERT INTO allswell.task VALUES ('t_1m7kzac802x66k0b', 'skipped', NULL, '', 2, 0, 'skipped', 1794892968193, 1794892968243, '{"needs":["t_1m7kzac7w9yeagsh"],"policy":{"retry":{}}}', '{"reason":"t_1m7kzac7w9yeagsh was failed"}', 'null', NULL, 4398048305996968193, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzacan3v02fax', 'asks', 'r_1m7kzacaeaear9tr', '', 2, 0, 'open', 1794892968277, NULL, '{"policy":{"retry":{}}}', '{"token":1,"questions":1,"asked_by":"e0wr7m259qvkdx76.18","handover":{"reason":"asked","agent":"ben","message":"Which table?"}}', 'null', NULL, 4398048305996968277, '["ben",1794892968284,1794892968288,"asked","e0wr7m259qvkdx76.18","Which table?"]');
INSERT INTO allswell.task VALUES ('t_1m7kzacb877771gc', 'answered', NULL, '', 2, 0, 'open', 1794892968296, NULL, '{"policy":{"retry":{}}}', '{"token":1,"questions":1,"asked_by":"e0wr7m259qvkdx76.1a","notes":["To “And this one?”, a human chose retry (Try again as it is): the second"],"handover":{"reason":"asked","agent":"ben","message":"And this one?","answer":"retry"}}', 'null', NULL, 4398048305996968296, '["ben",1794892968300,1794892968304,"asked","e0wr7m259qvkdx76.1a","And this one?"]');
INSERT INTO allswell.task VALUES ('t_1m7kzacbrd4tdtpr', 'asks in passing', NULL, '', 2, 0, 'open', 1794892968312, NULL, '{"policy":{"timeout":28800000,"retry":{}}}', '{"questions":1,"asked_by":"e0wr7m259qvkdx76.1d"}', 'null', NULL, 4398048305996968312, NULL);
INSERT INTO allswell.task VALUES ('t_tk3rhn9rby1h9em9', 'ready', NULL, 'writer', 4, 3, 'open', 1794892968324, NULL, '{"policy":{"retry":{}},"digest":"0f8ead3bd200f1c1"}', '{}', '{"file":"notes.md"}', NULL, 4398035111857435012, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzaccb4r9cxcg', 'held', NULL, '', 2, 0, 'open', 1794892968331, NULL, '{"policy":{"timeout":28800000,"idle":25200000,"retry":{}}}', '{}', 'null', NULL, 4398048305996968331, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzaccm3fswr32', 'waiting', NULL, '', 2, 0, 'open', 1794892968344, NULL, '{"needs":["t_1m7kzaccb4r9cxcg"],"critical":true,"policy":{"retry":{}}}', '{}', 'null', NULL, 4398048305996968344, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzacd8042qhd2', 'request', NULL, 'expert', 5, 0, 'open', 1794892968362, NULL, '{"policy":{"timeout":18000000,"retry":{"max_attempts":1,"retries":0}},"limit_at":1794910968362,"origin":{"task":"t_1m7kzaccb4r9cxcg","token":1,"agent":"ada","command":"e0wr7m259qvkdx76.22"}}', '{}', '"look at this"', NULL, 4398048305996968362, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzacdgffw45aq', 'leased', NULL, '', 2, 0, 'open', 1794892968368, NULL, '{"policy":{"timeout":28800000,"retry":{}}}', '{}', 'null', NULL, 4398048305996968368, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzacdr1wnhy16', 'watched', NULL, '', 2, 0, 'open', 1794892968376, NULL, '{"policy":{"timeout":28800000,"checkpoint_interval":100,"checkpoint_timeout":20,"stall_threshold":1,"recovery_grace":25200000}}', '{}', 'null', NULL, 4398048305996968376, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzace0f3e7w3a', 'delayed', NULL, '', 2, 0, 'open', 1794892968384, NULL, '{"policy":{"retry":{}},"not_before":1794907368384}', '{}', 'null', NULL, 4398048305996968384, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzace4cy5x3br', 'tried again', NULL, '', 2, 0, 'open', 1794892968387, NULL, '{"policy":{"retry":{"retries":3}}}', '{"token":1,"handover":{"reason":"parked","agent":"ada","message":"503"}}', 'null', NULL, 4398048305996968387, '["ada",1794892968398,1794892968401,"parked","e0wr7m259qvkdx76.27","503"]');
INSERT INTO allswell.task VALUES ('t_1m7kzacem3kvq7ty', 'late', NULL, '', 2, 0, 'open', 1794892968404, NULL, '{"policy":{"retry":{}}}', '{"token":1,"handover":{"reason":"released","agent":"ada","message":"not now"}}', 'null', NULL, 4398048305996968404, '["ada",1794892968410,1794892968417,"released","e0wr7m259qvkdx76.29","not now"]');
INSERT INTO allswell.task VALUES ('t_1m7kzacf6axjtwh5', 'of a run', 'r_1m7kzacf4fk7ghy4', '', 2, 0, 'open', 1794892968422, NULL, '{"policy":{"retry":{}}}', '{}', 'null', NULL, 4398048305996968422, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzacf9164gpas', 'of a run that ended', 'r_1m7kzacf71bex9jk', '', 2, 0, 'cancelled', 1794892968425, 1794892968438, '{"policy":{"retry":{}}}', '{"reason":"enough"}', 'null', NULL, 4398048305996968425, NULL);
INSERT INTO allswell.task VALUES ('t_1m7kzacg63z52bd2', 'of a run that ends', 'r_1m7kzacg52st2wyg', '', 2, 0, 'open', 1794892968456, NULL, '{"policy":{"retry":{}}}', '{}', 'null', NULL, 4398048305996968456, NULL);
INSERT INTO allswell.task VALUES ('t_am44btt1wzcjqax7', 'digest', 'r_kept', 'flow', 6, 0, 'open', 1794892968916, NULL, '{"policy":{"timeout":1805000,"checkpoint_interval":1805000,"stall_threshold":1073741824},"flow":true}', '{}', 'null', NULL, 4398048305996968916, NULL);
INSERT INTO allswell.task VALUES ('t_njnrreknqkwn38rt', 'fetch', 'r_kept', 'step', 7, 0, 'done', 1794892968927, 1794892968927, '{}', '{"token":1,"reason":"completed","ended_by":"njnrreknqkwn38rt.1"}', '{"args":["a"]}', '"A"', 4398048305996968927, '["elsewhere:8167.1218312.0a0b0c0d",1794892968927,1794892968927,"done","njnrreknqkwn38rt.1","completed"]');
INSERT INTO allswell.task VALUES ('t_4rvx0q337d25wfxg', 'fetch', 'r_kept', 'step', 7, 0, 'done', 1794892968931, 1794892968931, '{}', '{"token":1,"reason":"completed","ended_by":"4rvx0q337d25wfxg.1"}', '{"args":["b"]}', '"B"', 4398048305996968931, '["elsewhere:8167.1218312.0a0b0c0d",1794892968931,1794892968931,"done","4rvx0q337d25wfxg.1","completed"]');
INSERT INTO allswell.timer VALUES ('t_1m7kzacd8042qhd2', 1794910968362);
INSERT INTO allswell.timer VALUES ('t_1m7kzace0f3e7w3a', 1794907368384);
INSERT INTO allswell.timer VALUES ('t_1m7kzace4cy5x3br', 1794914568401);
INSERT INTO allswell.timer VALUES ('r_1m7kzacf4fk7ghy4', 1794914568421);
INSERT INTO allswell.timer VALUES ('t_1m7kzacdr1wnhy16', 1794892969002);
INSERT INTO allswell.waits VALUES ('t_1m7kzacan3v02fax', 'question', 'q_1m7kzacan3v02fax.1');
INSERT INTO allswell.waits VALUES ('t_1m7kzaccm3fswr32', 'need', 't_1m7kzaccb4r9cxcg');
SELECT pg_catalog.setval('allswell.journal_id_seq', 64, true);
SELECT pg_catalog.setval('allswell.lane_id_seq', 7, true);
SELECT pg_catalog.setval('allswell.spread_seq_seq', 5, true);
ALTER TABLE ONLY allswell.agent
    ADD CONSTRAINT agent_pkey PRIMARY KEY (id);
ALTER TABLE ONLY allswell.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (task, token);
ALTER TABLE ONLY allswell.bar
    ADD CONSTRAINT bar_pkey PRIMARY KEY (task, agent);
ALTER TABLE ONLY allswell.cursor
    ADD CONSTRAINT cursor_pkey PRIMARY KEY (follower);
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
CREATE INDEX lease_command ON allswell.lease USING btree (command) WHERE (command <> ''::text);
CREATE INDEX lease_due ON allswell.lease USING btree (due_at);
CREATE INDEX question_open ON allswell.question USING btree (task, id) WHERE (closed_at IS NULL);
CREATE INDEX task_name ON allswell.task USING btree (name);
CREATE INDEX task_open ON allswell.task USING btree (id) WHERE (ended_at IS NULL);
CREATE INDEX task_open_of_run ON allswell.task USING btree (run, id) WHERE ((ended_at IS NULL) AND (run IS NOT NULL));
CREATE INDEX timer_due ON allswell.timer USING btree (due_at);
CREATE INDEX waits_target ON allswell.waits USING btree (target, task);

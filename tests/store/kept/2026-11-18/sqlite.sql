-- left at 1794978491912
BEGIN TRANSACTION;
CREATE TABLE agent (
    id TEXT PRIMARY KEY NOT NULL,
    misses INTEGER NOT NULL,
    missed_at INTEGER NOT NULL,
    stalled INTEGER NOT NULL
, standing TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
INSERT INTO "agent" VALUES('eve',48,1794978491802,1,'');
CREATE TABLE attempt (
    task TEXT NOT NULL,
    token INTEGER NOT NULL,
    agent TEXT NOT NULL,
    granted_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    command TEXT NOT NULL,
    detail TEXT NOT NULL,
    late TEXT, afterwards TEXT,
    PRIMARY KEY (task, token)
) WITHOUT ROWID;
INSERT INTO "attempt" VALUES('t_1m7pgw6y85hf3kbp',2,'ada',1794978487252,1794978487257,'failed:validation','tz6wdw4j6gfsstfq.47','no such file',NULL,NULL);
INSERT INTO "attempt" VALUES('t_41qtf5f7f2jd0xxt',2,'flow-elsewhere-3548',1794978491845,1794978491871,'done','9g2ft9x8km7ag4ba.3','completed',NULL,NULL);
CREATE TABLE bar (
    task TEXT NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (task, agent)
) WITHOUT ROWID;
INSERT INTO "bar" VALUES('t_tk3rhn9rby1h9em9','cato');
CREATE TABLE cursor (
    follower TEXT PRIMARY KEY NOT NULL,
    xid INTEGER NOT NULL,
    id INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "cursor" VALUES('kept',0,105);
INSERT INTO "cursor" VALUES('sink.ops',1,2);
CREATE TABLE delivery (
    sink TEXT NOT NULL,
    xid INTEGER NOT NULL,
    number INTEGER NOT NULL,
    part INTEGER NOT NULL,
    id TEXT NOT NULL,
    target TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    tries INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    failing_since INTEGER,
    given_up INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (sink, xid, number, part)
) WITHOUT ROWID;
INSERT INTO "delivery" VALUES('ops',1,1,0,'msg_ops_1','https://example.org/a',1794978487269,'{"text": "hello"}',0,0,NULL,0,'');
INSERT INTO "delivery" VALUES('ops',1,2,0,'msg_ops_2','https://example.org/b',1794978487269,'{}',4,1794978487269,1794978487269,1,'410 Gone');
CREATE TABLE expense (
    task TEXT NOT NULL,
    token INTEGER NOT NULL,
    agent TEXT NOT NULL,
    role TEXT NOT NULL,
    run TEXT,
    told_at INTEGER NOT NULL,
    cost INTEGER,
    given INTEGER,
    written INTEGER,
    PRIMARY KEY (task, token)
) WITHOUT ROWID;
INSERT INTO "expense" VALUES('t_1m7pgw6qn1s2f7rm',1,'ada','writer','r_1m7pgw6qc1kqkdwp',1794978487051,2500000,90000,4000);
INSERT INTO "expense" VALUES('t_1m7pgw6rf73p8r0z',1,'ada','',NULL,1794978487083,1200000,NULL,70);
CREATE TABLE journal (
    last INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    events TEXT NOT NULL
);
INSERT INTO "journal" VALUES(1,1794978486449,'[{"kind":"task_submitted","task":"t_1m7pgw65f55r0xr8","data":{"name":"done"}}]');
INSERT INTO "journal" VALUES(2,1794978486459,'[{"kind":"task_claimed","task":"t_1m7pgw65f55r0xr8","agent":"ada","token":1,"data":{"deadline":1794979386459}}]');
INSERT INTO "journal" VALUES(3,1794978486463,'[{"kind":"task_completed","task":"t_1m7pgw65f55r0xr8","agent":"ada","token":1,"data":{"elapsed_ms":4}}]');
INSERT INTO "journal" VALUES(4,1794978486479,'[{"kind":"task_submitted","task":"t_1m7pgw6655f6xd94","data":{"name":"failed"}}]');
INSERT INTO "journal" VALUES(5,1794978486483,'[{"kind":"task_submitted","task":"t_1m7pgw66g2ak7mkx","data":{"name":"skipped"}}]');
INSERT INTO "journal" VALUES(6,1794978486495,'[{"kind":"task_claimed","task":"t_1m7pgw6655f6xd94","agent":"ada","token":1,"data":{"deadline":1794979386495}}]');
INSERT INTO "journal" VALUES(7,1794978486503,'[{"kind":"task_failed","task":"t_1m7pgw6655f6xd94","agent":"ada","token":1,"data":{"reason":"no such table; a bad request is not retried","message":"no such table"}}]');
INSERT INTO "journal" VALUES(8,1794978486515,'[{"kind":"task_submitted","task":"t_1m7pgw67f7d2s3mt","data":{"name":"cancelled"}}]');
INSERT INTO "journal" VALUES(9,1794978486527,'[{"kind":"task_skipped","task":"t_1m7pgw66g2ak7mkx","data":{"reason":"t_1m7pgw6655f6xd94 was failed: no such table; a bad request is not retried"}}]');
INSERT INTO "journal" VALUES(10,1794978486529,'[{"kind":"task_cancelled","task":"t_1m7pgw67f7d2s3mt","data":{"reason":"not wanted any more"}}]');
INSERT INTO "journal" VALUES(11,1794978486535,'[{"kind":"task_submitted","task":"t_1m7pgw6836a663s2","data":{"name":"too big"}}]');
INSERT INTO "journal" VALUES(12,1794978486543,'[{"kind":"task_claimed","task":"t_1m7pgw6836a663s2","agent":"ada","token":1,"data":{"deadline":1794979386543}}]');
INSERT INTO "journal" VALUES(13,1794978486551,'[{"kind":"question_asked","task":"t_1m7pgw6836a663s2","data":{"question":"q_1m7pgw6836a663s2.1","kind":"agent","text":"This is too much for one.","options":["Split task into smaller subtasks","Skip task and continue"]}}]');
INSERT INTO "journal" VALUES(16,1794978486559,'[{"kind":"question_answered","task":"t_1m7pgw6836a663s2","data":{"question":"q_1m7pgw6836a663s2.1","choice":"split","by":"cleo"}},{"kind":"task_split","task":"t_1m7pgw6836a663s2","data":{"subtasks":["t_1m7pgw68v85v4pq0"]}},{"kind":"task_submitted","task":"t_1m7pgw68v85v4pq0","data":{"name":"part"}}]');
INSERT INTO "journal" VALUES(17,1794978486575,'[{"kind":"task_submitted","task":"t_1m7pgw69315fw0zn","data":{"name":"needs the parked"}}]');
INSERT INTO "journal" VALUES(18,1794978486583,'[{"kind":"task_submitted","task":"t_1m7pgw69kft52tcv","data":{"name":"parked by"}}]');
INSERT INTO "journal" VALUES(19,1794978486590,'[{"kind":"task_claimed","task":"t_1m7pgw69kft52tcv","agent":"ada","token":1,"data":{"deadline":1794979386590}}]');
INSERT INTO "journal" VALUES(21,1794978486598,'[{"kind":"service_parked","task":"t_1m7pgw69kft52tcv","data":{"service":"parked","until":1794985686598}},{"kind":"task_returned","task":"t_1m7pgw69kft52tcv","agent":"ada","token":1,"data":{"reason":"service_parked"}}]');
INSERT INTO "journal" VALUES(22,1794978486683,'[{"kind":"breaker_opened","data":{"service":"broken","failures":3,"pause_ms":30000}}]');
INSERT INTO "journal" VALUES(24,1794978486692,'[{"kind":"service_escalated","data":{"service":"locked","cause":"auth","reason":"a refused login is not retried","question":"q_@locked.1"}},{"kind":"question_asked","data":{"question":"q_@locked.1","kind":"service_needs_help","text":"Service locked refuses who we say we are (PermissionError: 401). Calls that meet this are given up. How should we proceed?","options":["It is mended: go on, and ask again if it happens again","Ask again in an hour, if it still happens"]}}]');
INSERT INTO "journal" VALUES(25,1794978486704,'[{"kind":"run_opened","run":"r_1m7pgw6db9hkxcrw","data":{"name":"stands","deadline":1794989286704}}]');
INSERT INTO "journal" VALUES(26,1794978486708,'[{"kind":"task_submitted","task":"t_1m7pgw6dkeq0w0ch","run":"r_1m7pgw6db9hkxcrw","data":{"name":"asks"}}]');
INSERT INTO "journal" VALUES(27,1794978486715,'[{"kind":"task_claimed","task":"t_1m7pgw6dkeq0w0ch","run":"r_1m7pgw6db9hkxcrw","agent":"ben","token":1,"data":{"deadline":1794979386715}}]');
INSERT INTO "journal" VALUES(29,1794978486724,'[{"kind":"question_asked","task":"t_1m7pgw6dkeq0w0ch","run":"r_1m7pgw6db9hkxcrw","data":{"question":"q_1m7pgw6dkeq0w0ch.1","kind":"agent","text":"Which table?","options":["Try again as it is","Skip task and continue"]}},{"kind":"run_stands","run":"r_1m7pgw6db9hkxcrw","data":{"question":"q_1m7pgw6dkeq0w0ch.1"}}]');
INSERT INTO "journal" VALUES(30,1794978486735,'[{"kind":"task_submitted","task":"t_1m7pgw6ebfrw86k8","data":{"name":"answered"}}]');
INSERT INTO "journal" VALUES(31,1794978486741,'[{"kind":"task_claimed","task":"t_1m7pgw6ebfrw86k8","agent":"ben","token":1,"data":{"deadline":1794979386741}}]');
INSERT INTO "journal" VALUES(32,1794978486758,'[{"kind":"question_asked","task":"t_1m7pgw6ebfrw86k8","data":{"question":"q_1m7pgw6ebfrw86k8.1","kind":"agent","text":"And this one?","options":["Try again as it is","Skip task and continue"]}}]');
INSERT INTO "journal" VALUES(34,1794978486767,'[{"kind":"question_answered","task":"t_1m7pgw6ebfrw86k8","data":{"question":"q_1m7pgw6ebfrw86k8.1","choice":"retry","by":"cleo"}},{"kind":"task_ready","task":"t_1m7pgw6ebfrw86k8","data":{"reason":"answered"}}]');
INSERT INTO "journal" VALUES(35,1794978486778,'[{"kind":"task_submitted","task":"t_1m7pgw6fkadmfm86","data":{"name":"asks in passing"}}]');
INSERT INTO "journal" VALUES(36,1794978486785,'[{"kind":"task_claimed","task":"t_1m7pgw6fkadmfm86","agent":"ben","token":1,"data":{"deadline":1795007286785}}]');
INSERT INTO "journal" VALUES(37,1794978486795,'[{"kind":"question_asked","task":"t_1m7pgw6fkadmfm86","data":{"question":"q_1m7pgw6fkadmfm86.1","kind":"agent","text":"By the way?","options":["Try again as it is","Skip task and continue"]}}]');
INSERT INTO "journal" VALUES(38,1794978486810,'[{"kind":"task_submitted","task":"t_tk3rhn9rby1h9em9","data":{"name":"ready"}}]');
INSERT INTO "journal" VALUES(39,1794978486819,'[{"kind":"task_submitted","task":"t_1m7pgw6h379kz67p","data":{"name":"held"}}]');
INSERT INTO "journal" VALUES(40,1794978486903,'[{"kind":"task_submitted","task":"t_1m7pgw6k78gt45gd","data":{"name":"waiting"}}]');
INSERT INTO "journal" VALUES(41,1794978486927,'[{"kind":"task_claimed","task":"t_1m7pgw6h379kz67p","agent":"ada","token":1,"data":{"deadline":1795007286927}}]');
INSERT INTO "journal" VALUES(42,1794978486940,'[{"kind":"task_checked_in","task":"t_1m7pgw6h379kz67p","agent":"ada","token":1,"data":{"note":"half of it","progress":0.5}}]');
INSERT INTO "journal" VALUES(43,1794978486941,'[{"kind":"receipt_written","task":"t_1m7pgw6h379kz67p","agent":"ada","token":1,"data":{"receipt":"rc_kept.1","status":"partial","path":"receipts/kept.json"}}]');
INSERT INTO "journal" VALUES(45,1794978486953,'[{"kind":"request_sent","task":"t_1m7pgw6h379kz67p","agent":"ada","token":1,"data":{"request":"t_1m7pgw6n3asjh65a","kind":"delegation","to":"expert","timeout_ms":18000000}},{"kind":"task_submitted","task":"t_1m7pgw6n3asjh65a","data":{"name":"request"}}]');
INSERT INTO "journal" VALUES(46,1794978486961,'[{"kind":"task_submitted","task":"t_1m7pgw6ndehv9zf1","data":{"name":"leased"}}]');
INSERT INTO "journal" VALUES(47,1794978486979,'[{"kind":"task_claimed","task":"t_1m7pgw6ndehv9zf1","agent":"bob","token":1,"data":{"deadline":1795007286979}}]');
INSERT INTO "journal" VALUES(48,1794978486980,'[{"kind":"task_submitted","task":"t_1m7pgw6p4bavxk05","data":{"name":"watched"}}]');
INSERT INTO "journal" VALUES(49,1794978486982,'[{"kind":"task_claimed","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"deadline":1795007286982}}]');
INSERT INTO "journal" VALUES(50,1794978486983,'[{"kind":"task_submitted","task":"t_1m7pgw6p74agmxkk","data":{"name":"delayed"}}]');
INSERT INTO "journal" VALUES(51,1794978486984,'[{"kind":"task_submitted","task":"t_1m7pgw6p8c5wyxhs","data":{"name":"tried again"}}]');
INSERT INTO "journal" VALUES(52,1794978486985,'[{"kind":"task_claimed","task":"t_1m7pgw6p8c5wyxhs","agent":"ada","token":1,"data":{"deadline":1794979386985}}]');
INSERT INTO "journal" VALUES(53,1794978486986,'[{"kind":"task_returned","task":"t_1m7pgw6p8c5wyxhs","agent":"ada","token":1,"data":{"reason":"service_parked"}}]');
INSERT INTO "journal" VALUES(54,1794978486988,'[{"kind":"task_submitted","task":"t_1m7pgw6pb2ss99yn","data":{"name":"late"}}]');
INSERT INTO "journal" VALUES(55,1794978486989,'[{"kind":"task_claimed","task":"t_1m7pgw6pb2ss99yn","agent":"ada","token":1,"data":{"deadline":1794979386989}}]');
INSERT INTO "journal" VALUES(56,1794978486990,'[{"kind":"task_returned","task":"t_1m7pgw6pb2ss99yn","agent":"ada","token":1,"data":{"reason":"not now"}}]');
INSERT INTO "journal" VALUES(57,1794978486991,'[{"kind":"run_opened","run":"r_1m7pgw6pffprw451","data":{"name":"night","deadline":1795000086991}}]');
INSERT INTO "journal" VALUES(58,1794978486992,'[{"kind":"task_submitted","task":"t_1m7pgw6pg8q0b6sg","run":"r_1m7pgw6pffprw451","data":{"name":"of a run"}}]');
INSERT INTO "journal" VALUES(59,1794978486993,'[{"kind":"run_opened","run":"r_1m7pgw6ph9e36b2k","data":{"name":"over","deadline":null}}]');
INSERT INTO "journal" VALUES(60,1794978486994,'[{"kind":"task_submitted","task":"t_1m7pgw6pjebrsff0","run":"r_1m7pgw6ph9e36b2k","data":{"name":"of a run that ended"}}]');
INSERT INTO "journal" VALUES(61,1794978486995,'[{"kind":"run_ended","run":"r_1m7pgw6ph9e36b2k","data":{"reason":"enough"}}]');
INSERT INTO "journal" VALUES(62,1794978486997,'[{"kind":"task_cancelled","task":"t_1m7pgw6pjebrsff0","run":"r_1m7pgw6ph9e36b2k","data":{"reason":"enough"}}]');
INSERT INTO "journal" VALUES(63,1794978487007,'[{"kind":"run_opened","run":"r_1m7pgw6pz6nnw0a1","data":{"name":"ends","deadline":null}}]');
INSERT INTO "journal" VALUES(64,1794978487008,'[{"kind":"task_submitted","task":"t_1m7pgw6q02x2308j","run":"r_1m7pgw6pz6nnw0a1","data":{"name":"of a run that ends"}}]');
INSERT INTO "journal" VALUES(65,1794978487009,'[{"kind":"task_submitted","task":"t_1m7pgw6q16g5jnwg","data":{"name":"asks others"}}]');
INSERT INTO "journal" VALUES(66,1794978487010,'[{"kind":"task_claimed","task":"t_1m7pgw6q16g5jnwg","agent":"ben","token":1,"data":{"deadline":1795007287010}}]');
INSERT INTO "journal" VALUES(68,1794978487014,'[{"kind":"request_sent","task":"t_1m7pgw6q16g5jnwg","agent":"ben","token":1,"data":{"request":"m_1m7pgw6q16g5jnwg.3dzv20qh","kind":"status_check","to":"ada","timeout_ms":3600000}},{"kind":"task_submitted","task":"m_1m7pgw6q16g5jnwg.3dzv20qh","data":{"name":"write me a haiku"}}]');
INSERT INTO "journal" VALUES(70,1794978487015,'[{"kind":"request_closed","task":"t_1m7pgw6q16g5jnwg","agent":"ben","token":1,"data":{"request":"m_1m7pgw6q16g5jnwg.3dzv20qh","outcome":"done","reason":"answered"}},{"kind":"task_completed","task":"m_1m7pgw6q16g5jnwg.3dzv20qh","agent":"ada","token":1,"data":{"elapsed_ms":0}}]');
INSERT INTO "journal" VALUES(73,1794978487018,'[{"kind":"request_sent","task":"t_1m7pgw6q16g5jnwg","agent":"ben","token":1,"data":{"request":"m_1m7pgw6q16g5jnwg.8072mcfa","kind":"status_check","to":"bob","timeout_ms":1}},{"kind":"mesh_asked","task":"t_1m7pgw6q16g5jnwg","agent":"ben","token":1,"data":{"request":"m_1m7pgw6q16g5jnwg.8072mcfa","kind":"status_check","to":"bob"}},{"kind":"task_submitted","task":"m_1m7pgw6q16g5jnwg.8072mcfa","data":{"name":"is it up?"}}]');
INSERT INTO "journal" VALUES(75,1794978487020,'[{"kind":"request_expired","task":"t_1m7pgw6q16g5jnwg","agent":"ben","token":1,"data":{"request":"m_1m7pgw6q16g5jnwg.8072mcfa","kind":"status_check","to":"bob","attempt":1,"timeout_ms":1,"default_ms":120000,"against":"bob"}},{"kind":"request_blocked","task":"t_1m7pgw6q16g5jnwg","agent":"ben","token":1,"data":{"request":"m_1m7pgw6q16g5jnwg.8072mcfa","kind":"status_check","to":"bob","attempts":1,"next":""}}]');
INSERT INTO "journal" VALUES(76,1794978487027,'[{"kind":"run_opened","run":"r_1m7pgw6qc1kqkdwp","data":{"name":"budget","deadline":null}}]');
INSERT INTO "journal" VALUES(77,1794978487029,'[{"kind":"task_submitted","task":"t_1m7pgw6qn1s2f7rm","run":"r_1m7pgw6qc1kqkdwp","data":{"name":"costs"}}]');
INSERT INTO "journal" VALUES(78,1794978487035,'[{"kind":"task_claimed","task":"t_1m7pgw6qn1s2f7rm","run":"r_1m7pgw6qc1kqkdwp","agent":"ada","token":1,"data":{"deadline":1795007287035}}]');
INSERT INTO "journal" VALUES(79,1794978487051,'[{"kind":"attempt_cost","task":"t_1m7pgw6qn1s2f7rm","run":"r_1m7pgw6qc1kqkdwp","agent":"ada","token":1,"data":{"cost_usd":2.5,"given":90000,"written":4000}}]');
INSERT INTO "journal" VALUES(80,1794978487063,'[{"kind":"task_submitted","task":"t_1m7pgw6rf73p8r0z","data":{"name":"costs too much"}}]');
INSERT INTO "journal" VALUES(81,1794978487071,'[{"kind":"task_claimed","task":"t_1m7pgw6rf73p8r0z","agent":"ada","token":1,"data":{"deadline":1794979387071}}]');
INSERT INTO "journal" VALUES(82,1794978487083,'[{"kind":"attempt_cost","task":"t_1m7pgw6rf73p8r0z","agent":"ada","token":1,"data":{"cost_usd":1.2,"given":null,"written":70}}]');
INSERT INTO "journal" VALUES(84,1794978487089,'[{"kind":"cost_limit","task":"t_1m7pgw6rf73p8r0z","agent":"ada","token":1,"data":{"cost_usd":1.2}},{"kind":"question_asked","task":"t_1m7pgw6rf73p8r0z","data":{"question":"q_1m7pgw6rf73p8r0z.1","kind":"cost_limit","text":"Task costs too much has cost $1.20 in its attempt, and may cost $1.00. Its work is kept. How should we proceed?","options":["Go on with more money for this task","Skip task and continue"]}}]');
INSERT INTO "journal" VALUES(86,1794978487095,'[{"kind":"question_answered","task":"t_1m7pgw6rf73p8r0z","data":{"question":"q_1m7pgw6rf73p8r0z.1","choice":"increase_cost","by":"cleo"}},{"kind":"task_ready","task":"t_1m7pgw6rf73p8r0z","data":{"reason":"answered"}}]');
INSERT INTO "journal" VALUES(87,1794978487107,'[{"kind":"task_submitted","task":"t_1m7pgw6sy5yredjx","data":{"name":"to be verified"}}]');
INSERT INTO "journal" VALUES(89,1794978487119,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":1}},{"kind":"agent_stalled","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"action":"marked_for_restart"}}]');
INSERT INTO "journal" VALUES(90,1794978487127,'[{"kind":"task_claimed","task":"t_1m7pgw6sy5yredjx","agent":"ada","token":1,"data":{"deadline":1794979387127}}]');
INSERT INTO "journal" VALUES(92,1794978487138,'[{"kind":"task_verified","task":"t_1m7pgw6sy5yredjx","agent":"ada","token":1,"data":{"passed":false,"verify":"make test","why":"exit code 2","said":"2 failed","elapsed_ms":700,"failed":1,"most":3,"by":""}},{"kind":"task_sent_back","task":"t_1m7pgw6sy5yredjx","agent":"ada","token":1,"data":{"failed":1,"most":3}}]');
INSERT INTO "journal" VALUES(93,1794978487150,'[{"kind":"key_created","data":{"name":"ada","rights":["agent"],"roles":["writer"],"agents":["ada"],"expires_at":null,"by":"cleo"}}]');
INSERT INTO "journal" VALUES(94,1794978487170,'[{"kind":"key_created","data":{"name":"op","rights":["operator"],"roles":[],"agents":[],"expires_at":1796058487159,"by":""}}]');
INSERT INTO "journal" VALUES(95,1794978487187,'[{"kind":"key_created","data":{"name":"gone","rights":["viewer"],"roles":[],"agents":[],"expires_at":null,"by":""}}]');
INSERT INTO "journal" VALUES(96,1794978487203,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":2}}]');
INSERT INTO "journal" VALUES(97,1794978487211,'[{"kind":"key_revoked","data":{"name":"gone","by":"cleo"}}]');
INSERT INTO "journal" VALUES(98,1794978487218,'[{"kind":"link_made","data":{"name":"op","by":"cleo"}}]');
INSERT INTO "journal" VALUES(99,1794978487236,'[{"kind":"session_opened","data":{"name":"op","how":"link"}}]');
INSERT INTO "journal" VALUES(100,1794978487240,'[{"kind":"task_submitted","task":"t_1m7pgw6y85hf3kbp","data":{"name":"dismissed"}}]');
INSERT INTO "journal" VALUES(101,1794978487244,'[{"kind":"task_claimed","task":"t_1m7pgw6y85hf3kbp","agent":"ada","token":1,"data":{"deadline":1794979387244}}]');
INSERT INTO "journal" VALUES(102,1794978487248,'[{"kind":"task_returned","task":"t_1m7pgw6y85hf3kbp","agent":"ada","token":1,"data":{"reason":"not now"}}]');
INSERT INTO "journal" VALUES(103,1794978487252,'[{"kind":"task_claimed","task":"t_1m7pgw6y85hf3kbp","agent":"ada","token":2,"data":{"deadline":1794979387252}}]');
INSERT INTO "journal" VALUES(104,1794978487257,'[{"kind":"task_failed","task":"t_1m7pgw6y85hf3kbp","agent":"ada","token":2,"data":{"reason":"no such file; a bad request is not retried","message":"no such file"}}]');
INSERT INTO "journal" VALUES(105,1794978487261,'[{"kind":"task_dismissed","task":"t_1m7pgw6y85hf3kbp","data":{"by":"cleo"}}]');
INSERT INTO "journal" VALUES(108,1794978488607,'[{"kind":"run_opened","run":"r_kept","data":{"name":"digest","deadline":null}},{"kind":"task_submitted","task":"t_am44btt1wzcjqax7","run":"r_kept","data":{"name":"digest"}},{"kind":"task_claimed","task":"t_am44btt1wzcjqax7","run":"r_kept","agent":"elsewhere:3523.145837.0a0b0c0d","token":1,"data":{"deadline":1794980293607}}]');
INSERT INTO "journal" VALUES(122,1794978488611,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":3}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":4}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":5}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":6}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":7}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":8}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":9}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":10}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":11}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":12}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":13}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":14}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":15}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":16}}]');
INSERT INTO "journal" VALUES(123,1794978488615,'[{"kind":"step_recorded","task":"t_njnrreknqkwn38rt","run":"r_kept","agent":"elsewhere:3523.145837.0a0b0c0d","token":1,"data":{"name":"fetch","elapsed_ms":0}}]');
INSERT INTO "journal" VALUES(124,1794978488619,'[{"kind":"step_recorded","task":"t_4rvx0q337d25wfxg","run":"r_kept","agent":"elsewhere:3523.145837.0a0b0c0d","token":1,"data":{"name":"fetch","elapsed_ms":0}}]');
INSERT INTO "journal" VALUES(138,1794978490028,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":17}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":18}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":19}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":20}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":21}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":22}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":23}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":24}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":25}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":26}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":27}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":28}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":29}},{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":30}}]');
INSERT INTO "journal" VALUES(139,1794978490191,'[{"kind":"run_opened","run":"r_1m7pgw9sr2e2sjhe","data":{"name":"chain","deadline":1794980890191}}]');
INSERT INTO "journal" VALUES(140,1794978490196,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":31}}]');
INSERT INTO "journal" VALUES(144,1794978490197,'[{"kind":"task_submitted","task":"t_vyetf0ptv2xrg05h","run":"r_1m7pgw9sr2e2sjhe","data":{"name":"first"}},{"kind":"task_submitted","task":"t_41qtf5f7f2jd0xxt","run":"r_1m7pgw9sr2e2sjhe","data":{"name":"slow"}},{"kind":"task_submitted","task":"t_tdf1kccn88ggzp29","run":"r_1m7pgw9sr2e2sjhe","data":{"name":"cut"}},{"kind":"task_submitted","task":"t_0csyj81bwr11hkbh","run":"r_1m7pgw9sr2e2sjhe","data":{"name":"last"}}]');
INSERT INTO "journal" VALUES(145,1794978490208,'[{"kind":"task_claimed","task":"t_vyetf0ptv2xrg05h","run":"r_1m7pgw9sr2e2sjhe","agent":"flow-elsewhere-3548","token":1,"data":{"deadline":1794979090208}}]');
INSERT INTO "journal" VALUES(146,1794978490227,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":32}}]');
INSERT INTO "journal" VALUES(147,1794978490274,'[{"kind":"task_completed","task":"t_vyetf0ptv2xrg05h","run":"r_1m7pgw9sr2e2sjhe","agent":"flow-elsewhere-3548","token":1,"data":{"elapsed_ms":66}}]');
INSERT INTO "journal" VALUES(148,1794978490277,'[{"kind":"task_ready","task":"t_41qtf5f7f2jd0xxt","run":"r_1m7pgw9sr2e2sjhe","data":{"reason":"what it needed is there"}}]');
INSERT INTO "journal" VALUES(149,1794978490280,'[{"kind":"task_claimed","task":"t_41qtf5f7f2jd0xxt","run":"r_1m7pgw9sr2e2sjhe","agent":"flow-elsewhere-3548","token":1,"data":{"deadline":1794978491780}}]');
INSERT INTO "journal" VALUES(150,1794978490303,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":33}}]');
INSERT INTO "journal" VALUES(151,1794978490404,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":34}}]');
INSERT INTO "journal" VALUES(152,1794978490503,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":35}}]');
INSERT INTO "journal" VALUES(153,1794978490603,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":36}}]');
INSERT INTO "journal" VALUES(154,1794978490703,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":37}}]');
INSERT INTO "journal" VALUES(155,1794978490807,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":38}}]');
INSERT INTO "journal" VALUES(156,1794978490907,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":39}}]');
INSERT INTO "journal" VALUES(157,1794978491003,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":40}}]');
INSERT INTO "journal" VALUES(158,1794978491107,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":41}}]');
INSERT INTO "journal" VALUES(159,1794978491203,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":42}}]');
INSERT INTO "journal" VALUES(160,1794978491303,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":43}}]');
INSERT INTO "journal" VALUES(161,1794978491403,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":44}}]');
INSERT INTO "journal" VALUES(162,1794978491503,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":45}}]');
INSERT INTO "journal" VALUES(163,1794978491604,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":46}}]');
INSERT INTO "journal" VALUES(164,1794978491719,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":47}}]');
INSERT INTO "journal" VALUES(166,1794978491782,'[{"kind":"agent_timeout","task":"t_41qtf5f7f2jd0xxt","run":"r_1m7pgw9sr2e2sjhe","agent":"flow-elsewhere-3548","token":1,"data":{"elapsed_ms":1502}},{"kind":"task_returned","task":"t_41qtf5f7f2jd0xxt","run":"r_1m7pgw9sr2e2sjhe","agent":"flow-elsewhere-3548","token":1,"data":{"reason":"agent_timeout"}}]');
INSERT INTO "journal" VALUES(167,1794978491807,'[{"kind":"checkpoint_timeout","task":"t_1m7pgw6p4bavxk05","agent":"eve","token":1,"data":{"checkpoint_count":48}}]');
INSERT INTO "journal" VALUES(168,1794978491845,'[{"kind":"task_claimed","task":"t_41qtf5f7f2jd0xxt","run":"r_1m7pgw9sr2e2sjhe","agent":"flow-elsewhere-3548","token":2,"data":{"deadline":1794978493345}}]');
INSERT INTO "journal" VALUES(169,1794978491871,'[{"kind":"task_completed","task":"t_41qtf5f7f2jd0xxt","run":"r_1m7pgw9sr2e2sjhe","agent":"flow-elsewhere-3548","token":2,"data":{"elapsed_ms":26}}]');
INSERT INTO "journal" VALUES(170,1794978491875,'[{"kind":"task_ready","task":"t_tdf1kccn88ggzp29","run":"r_1m7pgw9sr2e2sjhe","data":{"reason":"what it needed is there"}}]');
INSERT INTO "journal" VALUES(171,1794978491876,'[{"kind":"task_claimed","task":"t_tdf1kccn88ggzp29","run":"r_1m7pgw9sr2e2sjhe","agent":"flow-elsewhere-3548","token":1,"data":{"deadline":1794979091876}}]');
INSERT INTO "journal" VALUES(172,1794978491896,'[{"kind":"run_ended","run":"r_1m7pgw6pz6nnw0a1","data":{"reason":"called off"}}]');
CREATE TABLE lane (
    id INTEGER PRIMARY KEY,
    role TEXT NOT NULL,
    services TEXT NOT NULL,
    UNIQUE (role, services)
);
INSERT INTO "lane" VALUES(1,'','["printer"]');
INSERT INTO "lane" VALUES(2,'','[]');
INSERT INTO "lane" VALUES(3,'','["parked"]');
INSERT INTO "lane" VALUES(4,'writer','[]');
INSERT INTO "lane" VALUES(5,'expert','[]');
INSERT INTO "lane" VALUES(6,'@ada','[]');
INSERT INTO "lane" VALUES(7,'@bob','[]');
INSERT INTO "lane" VALUES(8,'flow','[]');
INSERT INTO "lane" VALUES(9,'step','[]');
CREATE TABLE lease (
    task TEXT PRIMARY KEY NOT NULL,
    token INTEGER NOT NULL,
    agent TEXT NOT NULL,
    granted_at INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    length INTEGER,
    idle INTEGER,
    ask_every INTEGER NOT NULL,
    ask_wait INTEGER NOT NULL,
    grace INTEGER NOT NULL,
    command TEXT NOT NULL,
    judged INTEGER NOT NULL,
    stalled_at INTEGER,
    renewed_at INTEGER NOT NULL,
    checkin_at INTEGER,
    progress REAL,
    note TEXT NOT NULL
, due_at INTEGER, own INTEGER) WITHOUT ROWID;
INSERT INTO "lease" VALUES('t_1m7pgw6fkadmfm86',1,'ben',1794978486785,1795007286785,NULL,NULL,300000,30000,10000,'',0,NULL,1794978486785,NULL,NULL,'',1794978816785,NULL);
INSERT INTO "lease" VALUES('t_1m7pgw6h379kz67p',1,'ada',1794978486927,1795007286927,NULL,25200000,300000,30000,10000,'',0,NULL,1794978486940,1794978486940,0.5,'half of it',1794978816927,NULL);
INSERT INTO "lease" VALUES('t_1m7pgw6ndehv9zf1',1,'bob',1794978486979,1795007286979,60000,NULL,300000,30000,10000,'',0,NULL,1794978486979,NULL,NULL,'',1794978546979,NULL);
INSERT INTO "lease" VALUES('t_1m7pgw6p4bavxk05',1,'eve',1794978486982,1795007286982,NULL,NULL,100,20,25200000,'',48,1794978487119,1794978486982,NULL,NULL,'',NULL,NULL);
INSERT INTO "lease" VALUES('t_1m7pgw6qn1s2f7rm',1,'ada',1794978487035,1795007287035,NULL,NULL,300000,30000,10000,'',0,NULL,1794978487035,NULL,NULL,'',1794978817035,NULL);
INSERT INTO "lease" VALUES('t_am44btt1wzcjqax7',1,'elsewhere:3523.145837.0a0b0c0d',1794978488607,1794980293607,60000,NULL,1805000,30000,10000,'x03h4nwkd6qcw34e.1',0,NULL,1794978488607,NULL,NULL,'',1794978548607,NULL);
INSERT INTO "lease" VALUES('t_tdf1kccn88ggzp29',1,'flow-elsewhere-3548',1794978491876,1794979091876,30000,NULL,600000,30000,10000,'',0,NULL,1794978491876,NULL,NULL,'',1794978521876,NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('kept.clock_set','00000000-0000-4000-8000-000000000000/time:[4026531834] 1794977028911');
INSERT INTO "meta" VALUES('kept.clock_slept','00000000-0000-4000-8000-000000000000/time:[4026531834] 0');
INSERT INTO "meta" VALUES('kept.key.ada','{"name":"ada","hash":"54141dbb313c87095732b6b29d0120273e4f00ab2dfb6f0ded255afba8bef954","rights":["agent"],"created_at":1794978487142,"by":"cleo","roles":["writer"],"agents":["ada"]}');
INSERT INTO "meta" VALUES('kept.key.gone','{"name":"gone","hash":"7262311df24d5d2d83990d676283e7d029fce160ec4bad871c5af83e2a0f23a3","rights":["viewer"],"created_at":1794978487175,"revoked_at":1794978487194,"revoked_by":"cleo"}');
INSERT INTO "meta" VALUES('kept.key.op','{"name":"op","hash":"ce8879f71b903513babdc6eb3a1d9c56f9364133573df05990238f98f5534768","rights":["operator"],"created_at":1794978487159,"expires_at":1796058487159}');
INSERT INTO "meta" VALUES('kept.max_cost.r_1m7pgw6qc1kqkdwp','40000000');
INSERT INTO "meta" VALUES('kept.mesh.agent.ben','1');
INSERT INTO "meta" VALUES('kept.session.op','{"link":{"hash":"fb6c1364d2e9b92cddf9da61f8653f61d21ac4dfebcb3f08e4bc1a46b12f3cc6","expires_at":1794979087214,"used":true},"open":[{"hash":"0b9c4b527c7c07592ccc177dbc313e0b7c7e38a3c573f1158e02ac2a32509b43","key":"ce8879f71b903513babdc6eb3a1d9c56f9364133573df05990238f98f5534768","opened_at":1794978487220,"expires_at":1795583287220}]}');
INSERT INTO "meta" VALUES('kept.sink.ops.memory','remembered');
INSERT INTO "meta" VALUES('kept.supervisor.night','{"name":"night","marker":"m","host":"elsewhere","pid":1,"boot_id":"b","pid_namespace":"n","pid_start":1,"started_at":1794978487263,"beaten_at":1794978487263,"pace":3600000,"posts":[{"agent":"ada","holder":"ada","kind":"claude","role":"writer","name":"costs","token":1,"condition":"working","proof_at":1794978487263}],"stopping":true}');
INSERT INTO "meta" VALUES('kept.survivors.ada','{"holder":"ada","task":"t_1m7pgw6y85hf3kbp","name":"dismissed","attempt":1,"host":"elsewhere","boot_id":"b","pid_namespace":"n","processes":[{"pid":7,"start":1,"command":"sleep 9"}],"folder":"x"}');
INSERT INTO "meta" VALUES('schema_version','8');
INSERT INTO "meta" VALUES('store_id','8fa9562838c6a01c8eae4da87f6c92fe');
CREATE TABLE question (
    id TEXT PRIMARY KEY NOT NULL,
    task TEXT NOT NULL,
    run TEXT,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    options TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    asked_by TEXT NOT NULL,
    closed_at INTEGER,
    choice TEXT,
    answer TEXT NOT NULL,
    answered_by TEXT NOT NULL,
    command TEXT NOT NULL
, waited INTEGER NOT NULL DEFAULT 0, dismissed_at INTEGER, dismissed_by TEXT NOT NULL DEFAULT '');
INSERT INTO "question" VALUES('q_1m7pgw6836a663s2.1','t_1m7pgw6836a663s2',NULL,'agent','This is too much for one.','[{"key":"split","label":"Split task into smaller subtasks","act":"split"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794978486551,'ada',1794978486559,'split','','cleo','tz6wdw4j6gfsstfq.a',1,NULL,'');
INSERT INTO "question" VALUES('q_@locked.1','',NULL,'service_needs_help','Service locked refuses who we say we are (PermissionError: 401). Calls that meet this are given up. How should we proceed?','[{"key":"mended","label":"It is mended: go on, and ask again if it happens again","act":"probe"},{"key":"later","label":"Ask again in an hour, if it still happens","act":"quiet"}]',1794978486692,'allswell',NULL,NULL,'','','',0,NULL,'');
INSERT INTO "question" VALUES('q_1m7pgw6dkeq0w0ch.1','t_1m7pgw6dkeq0w0ch','r_1m7pgw6db9hkxcrw','agent','Which table?','[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794978486724,'ben',NULL,NULL,'','','',1,NULL,'');
INSERT INTO "question" VALUES('q_1m7pgw6ebfrw86k8.1','t_1m7pgw6ebfrw86k8',NULL,'agent','And this one?','[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794978486758,'ben',1794978486767,'retry','the second','cleo','tz6wdw4j6gfsstfq.1b',1,NULL,'');
INSERT INTO "question" VALUES('q_1m7pgw6fkadmfm86.1','t_1m7pgw6fkadmfm86',NULL,'agent','By the way?','[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794978486795,'ben',NULL,NULL,'','','',0,NULL,'');
INSERT INTO "question" VALUES('q_1m7pgw6rf73p8r0z.1','t_1m7pgw6rf73p8r0z',NULL,'cost_limit','Task costs too much has cost $1.20 in its attempt, and may cost $1.00. Its work is kept. How should we proceed?','[{"key":"increase_cost","label":"Go on with more money for this task","act":"increase_cost"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794978487089,'allswell',1794978487095,'increase_cost','','cleo','tz6wdw4j6gfsstfq.3c',1,NULL,'');
CREATE TABLE "ready" (
    lane INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (lane, rank, task)
) WITHOUT ROWID;
INSERT INTO "ready" VALUES(2,4398048306082486559,'t_1m7pgw68v85v4pq0');
INSERT INTO "ready" VALUES(2,4398048306082486735,'t_1m7pgw6ebfrw86k8');
INSERT INTO "ready" VALUES(2,4398048306082486988,'t_1m7pgw6pb2ss99yn');
INSERT INTO "ready" VALUES(2,4398048306082486992,'t_1m7pgw6pg8q0b6sg');
INSERT INTO "ready" VALUES(2,4398048306082487008,'t_1m7pgw6q02x2308j');
INSERT INTO "ready" VALUES(2,4398048306082487063,'t_1m7pgw6rf73p8r0z');
INSERT INTO "ready" VALUES(2,4398048306082487107,'t_1m7pgw6sy5yredjx');
INSERT INTO "ready" VALUES(3,4398048306082486575,'t_1m7pgw69315fw0zn');
INSERT INTO "ready" VALUES(3,4398048306082486583,'t_1m7pgw69kft52tcv');
INSERT INTO "ready" VALUES(4,4398035111942953498,'t_tk3rhn9rby1h9em9');
INSERT INTO "ready" VALUES(5,4398048306082486953,'t_1m7pgw6n3asjh65a');
INSERT INTO "ready" VALUES(7,4398048306082487018,'m_1m7pgw6q16g5jnwg.8072mcfa');
CREATE TABLE run (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    deadline INTEGER,
    ended_at INTEGER,
    reason TEXT NOT NULL,
    command TEXT NOT NULL
, asked INTEGER NOT NULL DEFAULT 0, stands_since INTEGER, stood INTEGER NOT NULL DEFAULT 0, moves INTEGER NOT NULL DEFAULT 0);
INSERT INTO "run" VALUES('r_1m7pgw6db9hkxcrw','stands',1794978486704,1794989286704,NULL,'','tz6wdw4j6gfsstfq.16',1,1794978486724,0,1);
INSERT INTO "run" VALUES('r_1m7pgw6pffprw451','night',1794978486991,1795000086991,NULL,'','tz6wdw4j6gfsstfq.2a',0,NULL,0,0);
INSERT INTO "run" VALUES('r_1m7pgw6ph9e36b2k','over',1794978486993,NULL,1794978486995,'enough','tz6wdw4j6gfsstfq.2e',0,NULL,0,0);
INSERT INTO "run" VALUES('r_1m7pgw6pz6nnw0a1','ends',1794978487007,NULL,1794978491896,'called off','qadc3bm43pqanqnb.1',0,NULL,0,0);
INSERT INTO "run" VALUES('r_1m7pgw6qc1kqkdwp','budget',1794978487027,NULL,NULL,'','tz6wdw4j6gfsstfq.36',0,NULL,0,0);
INSERT INTO "run" VALUES('r_kept','digest',1794978488607,NULL,NULL,'','x03h4nwkd6qcw34e.1',0,NULL,0,0);
INSERT INTO "run" VALUES('r_1m7pgw9sr2e2sjhe','chain',1794978490191,1794980890191,NULL,'','open.r_1m7pgw9sr2e2sjhe',0,NULL,0,0);
CREATE TABLE "service" (
    id TEXT PRIMARY KEY NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "service" VALUES('broken','{"id":"broken","state":{"failures":3,"generation":1,"open_until":1794978516683},"since":1794978486683,"command":"tz6wdw4j6gfsstfq.12"}');
INSERT INTO "service" VALUES('locked','{"id":"locked","questions":1,"command":"tz6wdw4j6gfsstfq.15","causes":{"auth":1}}');
INSERT INTO "service" VALUES('parked','{"id":"parked","state":{"parked_until":1794985686598}}');
CREATE TABLE spread (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    replaced_by TEXT NOT NULL
);
INSERT INTO "spread" VALUES(1,'r_1m7pgw6pz6nnw0a1','cancelled','called off','[]');
CREATE TABLE task (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    run TEXT,
    role TEXT NOT NULL,
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    spec TEXT NOT NULL,
    record TEXT NOT NULL,
    payload TEXT NOT NULL,
    result TEXT
, rank INTEGER NOT NULL DEFAULT 0, attempt TEXT);
INSERT INTO "task" VALUES('t_1m7pgw65f55r0xr8','done',NULL,'',1,0,'done',1794978486449,1794978486463,'{"services":["printer"],"policy":{"retry":{}}}','{"token":1,"reason":"completed","ended_by":"tz6wdw4j6gfsstfq.2"}','{"pages":3}','{"pages":[1,2,3]}',4398048306082486449,'["ada",1794978486459,1794978486463,"done","tz6wdw4j6gfsstfq.2","completed"]');
INSERT INTO "task" VALUES('t_1m7pgw6655f6xd94','failed',NULL,'',2,0,'failed',1794978486479,1794978486503,'{}','{"token":1,"failures":{"validation":1},"handover":{"reason":"failed:validation","agent":"ada","message":"no such table"},"reason":"no such table; a bad request is not retried","ended_by":"tz6wdw4j6gfsstfq.5"}','null',NULL,4398048306082486479,'["ada",1794978486495,1794978486503,"failed:validation","tz6wdw4j6gfsstfq.5","no such table"]');
INSERT INTO "task" VALUES('t_1m7pgw66g2ak7mkx','skipped',NULL,'',2,0,'skipped',1794978486483,1794978486527,'{"needs":["t_1m7pgw6655f6xd94"],"policy":{"retry":{}}}','{"reason":"t_1m7pgw6655f6xd94 was failed: no such table; a bad request is not retried"}','null',NULL,4398048306082486483,NULL);
INSERT INTO "task" VALUES('t_1m7pgw67f7d2s3mt','cancelled',NULL,'',2,0,'cancelled',1794978486515,1794978486529,'{}','{"reason":"not wanted any more","ended_by":"tz6wdw4j6gfsstfq.7"}','null',NULL,4398048306082486515,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6836a663s2','too big',NULL,'',2,0,'split',1794978486535,1794978486559,'{}','{"token":1,"questions":1,"asked_by":"tz6wdw4j6gfsstfq.9","notes":["To “This is too much for one.”, a human chose split (Split task into smaller subtasks)"],"handover":{"reason":"asked","agent":"ada","message":"This is too much for one."},"reason":"split into 1","replaced_by":["t_1m7pgw68v85v4pq0"],"ended_by":"tz6wdw4j6gfsstfq.a"}','null',NULL,4398048306082486535,'["ada",1794978486543,1794978486551,"asked","tz6wdw4j6gfsstfq.9","This is too much for one."]');
INSERT INTO "task" VALUES('t_1m7pgw68v85v4pq0','part',NULL,'',2,0,'open',1794978486559,NULL,'{}','{}','1',NULL,4398048306082486559,NULL);
INSERT INTO "task" VALUES('t_1m7pgw69315fw0zn','needs the parked',NULL,'',3,0,'open',1794978486575,NULL,'{"services":["parked"],"policy":{"retry":{}}}','{}','null',NULL,4398048306082486575,NULL);
INSERT INTO "task" VALUES('t_1m7pgw69kft52tcv','parked by',NULL,'',3,0,'open',1794978486583,NULL,'{"services":["parked"],"policy":{"retry":{}}}','{"token":1,"handover":{"reason":"parked","agent":"ada","message":"429"}}','null',NULL,4398048306082486583,'["ada",1794978486590,1794978486598,"parked","tz6wdw4j6gfsstfq.d","429"]');
INSERT INTO "task" VALUES('t_1m7pgw6dkeq0w0ch','asks','r_1m7pgw6db9hkxcrw','',2,0,'open',1794978486708,NULL,'{}','{"token":1,"questions":1,"asked_by":"tz6wdw4j6gfsstfq.18","handover":{"reason":"asked","agent":"ben","message":"Which table?"}}','null',NULL,4398048306082486708,'["ben",1794978486715,1794978486724,"asked","tz6wdw4j6gfsstfq.18","Which table?"]');
INSERT INTO "task" VALUES('t_1m7pgw6ebfrw86k8','answered',NULL,'',2,0,'open',1794978486735,NULL,'{}','{"token":1,"questions":1,"asked_by":"tz6wdw4j6gfsstfq.1a","notes":["To “And this one?”, a human chose retry (Try again as it is): the second"],"handover":{"reason":"asked","agent":"ben","message":"And this one?","answer":"retry"}}','null',NULL,4398048306082486735,'["ben",1794978486741,1794978486758,"asked","tz6wdw4j6gfsstfq.1a","And this one?"]');
INSERT INTO "task" VALUES('t_1m7pgw6fkadmfm86','asks in passing',NULL,'',2,0,'open',1794978486778,NULL,'{"policy":{"timeout":28800000,"retry":{}}}','{"questions":1,"asked_by":"tz6wdw4j6gfsstfq.1d"}','null',NULL,4398048306082486778,NULL);
INSERT INTO "task" VALUES('t_tk3rhn9rby1h9em9','ready',NULL,'writer',4,3,'open',1794978486810,NULL,'{"policy":{"retry":{}},"digest":"0f8ead3bd200f1c1"}','{}','{"file":"notes.md"}',NULL,4398035111942953498,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6h379kz67p','held',NULL,'',2,0,'open',1794978486819,NULL,'{"policy":{"timeout":28800000,"idle":25200000,"retry":{}}}','{}','null',NULL,4398048306082486819,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6k78gt45gd','waiting',NULL,'',2,0,'open',1794978486903,NULL,'{"needs":["t_1m7pgw6h379kz67p"],"critical":true,"policy":{"retry":{}}}','{}','null',NULL,4398048306082486903,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6n3asjh65a','request',NULL,'expert',5,0,'open',1794978486953,NULL,'{"policy":{"timeout":18000000,"retry":{"max_attempts":1,"retries":0}},"limit_at":1794996486953,"origin":{"task":"t_1m7pgw6h379kz67p","token":1,"agent":"ada","command":"tz6wdw4j6gfsstfq.22"}}','{}','"look at this"',NULL,4398048306082486953,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6ndehv9zf1','leased',NULL,'',2,0,'open',1794978486961,NULL,'{"policy":{"timeout":28800000,"retry":{}}}','{}','null',NULL,4398048306082486961,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6p4bavxk05','watched',NULL,'',2,0,'open',1794978486980,NULL,'{"policy":{"timeout":28800000,"checkpoint_interval":100,"checkpoint_timeout":20,"stall_threshold":1,"recovery_grace":25200000}}','{}','null',NULL,4398048306082486980,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6p74agmxkk','delayed',NULL,'',2,0,'open',1794978486983,NULL,'{"policy":{"retry":{}},"not_before":1794992886982}','{}','null',NULL,4398048306082486983,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6p8c5wyxhs','tried again',NULL,'',2,0,'open',1794978486984,NULL,'{"policy":{"retry":{"retries":3}}}','{"token":1,"handover":{"reason":"parked","agent":"ada","message":"503"}}','null',NULL,4398048306082486984,'["ada",1794978486985,1794978486986,"parked","tz6wdw4j6gfsstfq.27","503"]');
INSERT INTO "task" VALUES('t_1m7pgw6pb2ss99yn','late',NULL,'',2,0,'open',1794978486988,NULL,'{}','{"token":1,"handover":{"reason":"released","agent":"ada","message":"not now"}}','null',NULL,4398048306082486988,'["ada",1794978486989,1794978486990,"released","tz6wdw4j6gfsstfq.29","not now"]');
INSERT INTO "task" VALUES('t_1m7pgw6pg8q0b6sg','of a run','r_1m7pgw6pffprw451','',2,0,'open',1794978486992,NULL,'{}','{}','null',NULL,4398048306082486992,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6pjebrsff0','of a run that ended','r_1m7pgw6ph9e36b2k','',2,0,'cancelled',1794978486994,1794978486997,'{}','{"reason":"enough"}','null',NULL,4398048306082486994,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6q02x2308j','of a run that ends','r_1m7pgw6pz6nnw0a1','',2,0,'open',1794978487008,NULL,'{}','{}','null',NULL,4398048306082487008,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6q16g5jnwg','asks others',NULL,'',2,0,'open',1794978487009,NULL,'{"policy":{"timeout":28800000,"retry":{}}}','{"token":1,"handover":{"reason":"blocked","agent":"ben","message":"bob has not answered m_1m7pgw6q16g5jnwg.8072mcfa: is it up?"},"answers":[{"request":"m_1m7pgw6q16g5jnwg.3dzv20qh","summary":"write me a haiku","to":"ada","by":"ada","asked_at":1794978487014,"at":1794978487015,"text":"{\"lines\":3}","token":1}]}','null',NULL,4398048306082487009,'["ben",1794978487010,1794978487020,"blocked","","bob has not answered m_1m7pgw6q16g5jnwg.8072mcfa: is it up?"]');
INSERT INTO "task" VALUES('m_1m7pgw6q16g5jnwg.3dzv20qh','write me a haiku',NULL,'@ada',6,0,'done',1794978487014,1794978487015,'{"policy":{"retry":{}},"origin":{"task":"t_1m7pgw6q16g5jnwg","token":1,"agent":"ben","command":"tz6wdw4j6gfsstfq.32"},"request":{"kind":"status_check","to":"ada","timeout":3600000,"retries":1,"default":120000,"escalate":3600000,"remind":86400000,"asked":["ada"]}}','{"token":1,"reason":"answered","ended_by":"tz6wdw4j6gfsstfq.33","request":{"since":1794978487014,"due":1794982087014,"last":2,"by":"ada"}}','null','{"lines":3}',4398048306082487014,'["ada",1794978487015,1794978487015,"done","tz6wdw4j6gfsstfq.33","answered"]');
INSERT INTO "task" VALUES('m_1m7pgw6q16g5jnwg.8072mcfa','is it up?',NULL,'@bob',7,0,'open',1794978487018,NULL,'{"policy":{"retry":{}},"origin":{"task":"t_1m7pgw6q16g5jnwg","token":1,"agent":"ben","command":"tz6wdw4j6gfsstfq.34"},"request":{"kind":"status_check","to":"bob","timeout":1,"retries":0,"default":120000,"kept":32400000,"escalate":3600000,"remind":86400000,"asked":["bob"]}}','{"request":{"since":1794978487020,"due":1795010887020,"waiting":false,"mesh":true,"blocked_at":1794978487020,"moved_on":true,"alert_at":1794982087020}}','null',NULL,4398048306082487018,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6qn1s2f7rm','costs','r_1m7pgw6qc1kqkdwp','writer',4,0,'open',1794978487029,NULL,'{"policy":{"timeout":28800000,"retry":{},"max_cost":3000000}}','{}','null',NULL,4398048306082487029,NULL);
INSERT INTO "task" VALUES('t_1m7pgw6rf73p8r0z','costs too much',NULL,'',2,0,'open',1794978487063,NULL,'{"policy":{"retry":{},"max_cost":1000000}}','{"token":1,"questions":1,"handover":{"reason":"cost_limit","agent":"ada","message":"it has cost $1.20"},"cost_override":9000000}','null',NULL,4398048306082487063,'["ada",1794978487071,1794978487089,"cost_limit","tz6wdw4j6gfsstfq.3b","it has cost $1.20"]');
INSERT INTO "task" VALUES('t_1m7pgw6sy5yredjx','to be verified',NULL,'',2,0,'open',1794978487107,NULL,'{"policy":{"retry":{},"verify":["make","test"]}}','{"token":1,"handover":{"reason":"not_verified","agent":"ada","message":"It said done; `make test` failed (exit code 2), sent back, 1 of 3.\nIt printed last:\n2 failed"},"said_done":{"token":1,"said_at":1794978487138},"failed_checks":[{"token":1,"failed_at":1794978487138,"why":"exit code 2","said":"2 failed","elapsed":700,"command":"tz6wdw4j6gfsstfq.3e"}],"back_until":1794978517138}','null','"all of it"',4398048306082487107,'["ada",1794978487127,1794978487138,"not_verified","tz6wdw4j6gfsstfq.3e","It said done; `make test` failed (exit code 2), sent back, 1 of 3.\nIt printed last:\n2 failed"]');
INSERT INTO "task" VALUES('t_1m7pgw6y85hf3kbp','dismissed',NULL,'',2,0,'failed',1794978487240,1794978487257,'{}','{"token":2,"failures":{"validation":1},"handover":{"reason":"failed:validation","agent":"ada","message":"no such file"},"reason":"no such file; a bad request is not retried","ended_by":"tz6wdw4j6gfsstfq.47","dismissed":{"by":"cleo","dismissed_at":1794978487261,"token":2}}','null',NULL,4398048306082487240,'["ada",1794978487244,1794978487248,"released","tz6wdw4j6gfsstfq.46","not now"]');
INSERT INTO "task" VALUES('t_am44btt1wzcjqax7','digest','r_kept','flow',8,0,'open',1794978488607,NULL,'{"policy":{"timeout":1805000,"checkpoint_interval":1805000,"stall_threshold":1073741824},"flow":true}','{}','null',NULL,4398048306082488607,NULL);
INSERT INTO "task" VALUES('t_njnrreknqkwn38rt','fetch','r_kept','step',9,0,'done',1794978488615,1794978488615,'{}','{"token":1,"reason":"completed","ended_by":"njnrreknqkwn38rt.1"}','{"args":["a"]}','"A"',4398048306082488615,'["elsewhere:3523.145837.0a0b0c0d",1794978488615,1794978488615,"done","njnrreknqkwn38rt.1","completed"]');
INSERT INTO "task" VALUES('t_4rvx0q337d25wfxg','fetch','r_kept','step',9,0,'done',1794978488619,1794978488619,'{}','{"token":1,"reason":"completed","ended_by":"4rvx0q337d25wfxg.1"}','{"args":["b"]}','"B"',4398048306082488619,'["elsewhere:3523.145837.0a0b0c0d",1794978488619,1794978488619,"done","4rvx0q337d25wfxg.1","completed"]');
INSERT INTO "task" VALUES('t_0csyj81bwr11hkbh','last','r_1m7pgw9sr2e2sjhe','step',9,0,'open',1794978490197,NULL,'{"needs":["t_tdf1kccn88ggzp29"],"policy":{"timeout":600000,"checkpoint_interval":600000,"retry":{"retries":0}},"digest":"2323c4f26f58139b"}','{}','{"flow":"chain","run":"r_1m7pgw9sr2e2sjhe","home":"@FOLDER@/.allswell","folder":"@FOLDER@","step":"last","id":"last","work":{"kind":"run","argv":["sh","-c","echo last >> ran.txt"]},"timeouts":{"flow":2400000,"step":600000,"llm_call":120000,"tool":300000}}',NULL,4398048306082490197,NULL);
INSERT INTO "task" VALUES('t_41qtf5f7f2jd0xxt','slow','r_1m7pgw9sr2e2sjhe','step',9,0,'done',1794978490197,1794978491871,'{"needs":["t_vyetf0ptv2xrg05h"],"policy":{"timeout":1500,"retry":{"retries":1,"timeouts":1}},"digest":"29b7bac9c185a177","unblocks":2}','{"token":2,"timeouts":1,"handover":{"reason":"agent_timeout","agent":"flow-elsewhere-3548"},"reason":"completed","ended_by":"9g2ft9x8km7ag4ba.3"}','{"flow":"chain","run":"r_1m7pgw9sr2e2sjhe","home":"@FOLDER@/.allswell","folder":"@FOLDER@","step":"slow","id":"slow","work":{"kind":"run","argv":["sh","slow.sh"]},"timeouts":{"flow":2400000,"step":600000,"llm_call":120000,"tool":300000}}','{"step":"slow","exit_code":0}',4398048306082370197,'["flow-elsewhere-3548",1794978490280,1794978491782,"agent_timeout","",""]');
INSERT INTO "task" VALUES('t_tdf1kccn88ggzp29','cut','r_1m7pgw9sr2e2sjhe','step',9,0,'open',1794978490197,NULL,'{"needs":["t_41qtf5f7f2jd0xxt"],"policy":{"timeout":600000,"checkpoint_interval":600000,"retry":{"retries":0}},"digest":"a8df65cb9eb26f1c","unblocks":1}','{}','{"flow":"chain","run":"r_1m7pgw9sr2e2sjhe","home":"@FOLDER@/.allswell","folder":"@FOLDER@","step":"cut","id":"cut","work":{"kind":"run","argv":["sh","cut.sh","{{ steps.first.stdout }}"]},"timeouts":{"flow":2400000,"step":600000,"llm_call":120000,"tool":300000},"uses":{"first":"t_vyetf0ptv2xrg05h"}}',NULL,4398048306082430197,NULL);
INSERT INTO "task" VALUES('t_vyetf0ptv2xrg05h','first','r_1m7pgw9sr2e2sjhe','step',9,0,'done',1794978490197,1794978490274,'{"policy":{"timeout":600000,"checkpoint_interval":600000,"retry":{"retries":0}},"digest":"6df3cde3879e5b9b","unblocks":3}','{"token":1,"reason":"completed","ended_by":"9g2ft9x8km7ag4ba.2"}','{"flow":"chain","run":"r_1m7pgw9sr2e2sjhe","home":"@FOLDER@/.allswell","folder":"@FOLDER@","step":"first","id":"first","work":{"kind":"run","argv":["sh","-c","echo first | tee -a ran.txt first.txt"]},"timeouts":{"flow":2400000,"step":600000,"llm_call":120000,"tool":300000},"outputs":[{"name":"text","path":"first.txt"}]}','{"step":"first","stdout":"first","exit_code":0,"artifacts":[{"name":"text","path":"first.txt","sha256":"b640e840b19d378660b32fb51ae18d67dccb4a8596a29e7bd72c1b2ae5928f41","bytes":6}]}',4398048306082310197,'["flow-elsewhere-3548",1794978490208,1794978490274,"done","9g2ft9x8km7ag4ba.2","completed"]');
CREATE TABLE timer (
    owner TEXT PRIMARY KEY NOT NULL,
    due_at INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "timer" VALUES('t_1m7pgw6p4bavxk05',1794978491902);
INSERT INTO "timer" VALUES('r_1m7pgw9sr2e2sjhe',1794980890191);
INSERT INTO "timer" VALUES('m_1m7pgw6q16g5jnwg.8072mcfa',1794982087020);
INSERT INTO "timer" VALUES('t_1m7pgw6p74agmxkk',1794992886982);
INSERT INTO "timer" VALUES('t_1m7pgw6n3asjh65a',1794996486953);
INSERT INTO "timer" VALUES('t_1m7pgw6p8c5wyxhs',1795000086986);
INSERT INTO "timer" VALUES('r_1m7pgw6pffprw451',1795000086991);
CREATE TABLE wait (
    task TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (task, kind, target)
) WITHOUT ROWID;
INSERT INTO "wait" VALUES('t_1m7pgw6q16g5jnwg','request','m_1m7pgw6q16g5jnwg.8072mcfa');
INSERT INTO "wait" VALUES('t_1m7pgw6dkeq0w0ch','question','q_1m7pgw6dkeq0w0ch.1');
INSERT INTO "wait" VALUES('t_1m7pgw6k78gt45gd','need','t_1m7pgw6h379kz67p');
INSERT INTO "wait" VALUES('t_0csyj81bwr11hkbh','need','t_tdf1kccn88ggzp29');
CREATE INDEX task_name ON task (name);
CREATE INDEX task_open ON task (id) WHERE ended_at IS NULL;
CREATE INDEX task_run ON task (run, ended_at, id) WHERE run IS NOT NULL;
CREATE INDEX timer_due ON timer (due_at);
CREATE INDEX wait_target ON wait (target);
CREATE INDEX lease_command ON lease (command) WHERE command <> '';
CREATE INDEX question_open ON question (task) WHERE closed_at IS NULL;
CREATE INDEX lease_due ON lease (due_at);
CREATE INDEX task_ended_badly ON task (state, id) WHERE state <> 'open' AND state <> 'done';
CREATE VIEW event AS
SELECT last - json_array_length(events) + 1 + told.key AS id, at,
       json_extract(told.value, '$.kind') AS kind, json_extract(told.value, '$.task') AS task,
       json_extract(told.value, '$.run') AS run, json_extract(told.value, '$.agent') AS agent,
       json_extract(told.value, '$.token') AS token, coalesce(json_extract(told.value, '$.data'), '{}') AS data
FROM journal, json_each(events) AS told;
CREATE INDEX expense_run ON expense (run) WHERE run IS NOT NULL;
CREATE INDEX expense_role ON expense (role, told_at);
CREATE INDEX expense_agent ON expense (agent, told_at);
CREATE INDEX expense_told ON expense (told_at);
COMMIT;

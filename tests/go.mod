module github.com/linkreel/linkreel/tests

go 1.26.0

require github.com/linkreel/linkreel/libs v0.0.0

require (
	github.com/Shopify/toxiproxy/v2 v2.5.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/getkin/kin-openapi v0.152.0 // indirect
	github.com/go-rod/rod v0.116.2 // indirect
	github.com/gorilla/mux v1.8.0 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/rs/xid v1.4.0 // indirect
	github.com/rs/zerolog v1.28.0 // indirect
	github.com/ysmood/fetchup v0.2.3 // indirect
	github.com/ysmood/goob v0.4.0 // indirect
	github.com/ysmood/got v0.40.0 // indirect
	github.com/ysmood/gson v0.7.3 // indirect
	github.com/ysmood/leakless v0.9.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/tomb.v1 v1.0.0-20141024135613-dd632973f1e7 // indirect
)

replace github.com/linkreel/linkreel/libs => ../libs

require (
	github.com/linkreel/linkreel/services/auth v0.0.0
	github.com/linkreel/linkreel/services/links v0.0.0
	github.com/linkreel/linkreel/services/transcoding-worker v0.0.0
	github.com/linkreel/linkreel/services/videos v0.0.0
	github.com/linkreel/linkreel/services/standalone v0.0.0
)

replace (
	github.com/linkreel/linkreel/services/auth => ../services/auth
	github.com/linkreel/linkreel/services/links => ../services/links
	github.com/linkreel/linkreel/services/transcoding-worker => ../services/transcoding-worker
	github.com/linkreel/linkreel/services/videos => ../services/videos
	github.com/linkreel/linkreel/services/standalone => ../services/standalone
)

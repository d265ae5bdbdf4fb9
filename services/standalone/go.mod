module github.com/linkreel/linkreel/services/standalone

go 1.26.0

require github.com/linkreel/linkreel/libs v0.0.0

replace github.com/linkreel/linkreel/libs => ../../libs

require (
	github.com/linkreel/linkreel/services/auth v0.0.0
	github.com/linkreel/linkreel/services/links v0.0.0
	github.com/linkreel/linkreel/services/transcoding-worker v0.0.0
	github.com/linkreel/linkreel/services/videos v0.0.0
)

replace (
	github.com/linkreel/linkreel/services/auth => ../auth
	github.com/linkreel/linkreel/services/links => ../links
	github.com/linkreel/linkreel/services/transcoding-worker => ../transcoding-worker
	github.com/linkreel/linkreel/services/videos => ../videos
)
